"""Proof of vllm.both-empty-merge-triton, with the engine's own Triton kernel; see `patches/lab/vllm/both_empty.py`."""

from __future__ import annotations

from attnfix.patches.lab.vllm.both_empty import BothEmpty


class Proof(BothEmpty):
    kernel = "interpreted"

    def prepare(self) -> None:
        self.prepare_flash()
        self.merge_on(cuda=False)
