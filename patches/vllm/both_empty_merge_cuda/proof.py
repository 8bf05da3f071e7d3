"""Proof of vllm.both-empty-merge-cuda; see `patches/vllm/both_empty_proof.py`.

The op is compiled, so nothing of a release's Python says whether it has the guard: it is emulated by its source,
csrc/attention/merge_attn_states.cu in the source archives, without it up to 0.11.0.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from packaging.version import Version

from attnfix.patches import emulators
from attnfix.patches.vllm import both_empty_proof, mla_prefill

MODULES = MAY_LACK = both_empty_proof.MODULES
KERNEL = "emulated"
scenario, control, sabotages = both_empty_proof.scenario, both_empty_proof.control, both_empty_proof.fixup_sabotages


def prepare(modules: dict[str, Any]) -> None:
    import torch

    mla_prefill.prepare_flash(modules)
    mla_prefill.merge_on(cuda=True)
    ops: Any = torch.ops._C
    ops.merge_attn_states = emulators.MergeAttnStates(guarded=Version(version("vllm")) >= Version("0.11.1"))
