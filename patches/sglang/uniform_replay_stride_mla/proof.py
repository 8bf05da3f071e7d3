"""Proof of sglang.uniform-replay-stride-mla: draft extend of one to eight requests through graphs captured for fewer sizes.

What is real and what is emulated stands in `patches/lab/sglang/draft_extend_mla.py`.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang import draft_extend_mla as mla


class Proof(graphs.DraftExtend):
    modules, may_lack = mla.MODULES, mla.MAY_LACK
    step = mla.Step

    def prepare(self) -> None:
        backend = mla.prepare(self.engine)
        graphs.require_replayed(
            object.__new__(backend.TRTLLMMLABackend), object.__new__(backend.TRTLLMMLAMultiStepDraftBackend)
        )

    def sabotages(self) -> dict[str, Any]:
        return graphs.stride_sabotages()
