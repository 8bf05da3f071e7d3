"""Proof of vllm.both-empty-merge-cuda; see `patches/lab/vllm/both_empty.py`.

The op is compiled, so nothing of a release's Python says whether it has the guard: it is emulated by its source,
csrc/attention/merge_attn_states.cu in the source archives, without it up to 0.11.0.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from packaging.version import Version

from attnfix.patches.lab import emulators
from attnfix.patches.lab.vllm.both_empty import BothEmpty


class Proof(BothEmpty):
    def prepare(self) -> None:
        import torch

        self.prepare_flash()
        self.merge_on(cuda=True)
        ops: Any = torch.ops._C
        ops.merge_attn_states = emulators.MergeAttnStates(guarded=Version(version("vllm")) >= Version("0.11.1"))
