"""Proof of sglang.uniform-replay-stride-mla: draft extend of one to eight requests through graphs captured for fewer sizes.

What is real and what is emulated stands in `patches/sglang/draft_extend_mla.py`.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.scenario import Observation, combine
from attnfix.patches.sglang import draft_extend_graph as graphs
from attnfix.patches.sglang import draft_extend_mla as mla
from attnfix.patches.sglang.draft_extend_graph import ROOM
from attnfix.patches.sglang.draft_extend_mla import Step

MODULES, MAY_LACK = mla.MODULES, mla.MAY_LACK
KERNEL = "emulated"
sabotages = graphs.stride_sabotages


def prepare(modules: dict[str, Any]) -> None:
    backend = mla.prepare(modules)
    graphs.require_replayed(object.__new__(backend.TRTLLMMLABackend), object.__new__(backend.TRTLLMMLAMultiStepDraftBackend))


def scenario(seed: int) -> Observation:
    return _run(seed, "DRAFT_EXTEND_V2")


def control(seed: int) -> Observation:
    return _run(seed, "TARGET_VERIFY")


def _run(seed: int, mode: str) -> Observation:
    import torch

    draw = torch.Generator().manual_seed(seed)
    step = Step(mode, draw)
    return combine(*(seen for count in range(1, ROOM + 1) for seen in step(graphs.uneven(draw, count))))
