"""Proof of sglang.triton-draft-double-count: draft extend of one to eight requests through graphs captured for fewer sizes.

What is real and what is emulated stands in `patches/sglang/draft_extend_triton.py`. Every token is accepted: then 0.5.8 and
0.5.9, whose layout of the queries follows accept lengths (sglang.uniform-replay-stride-triton), lay them out rightly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfix.patches.scenario import Observation, combine, replaced
from attnfix.patches.sglang import draft_extend_graph as graphs
from attnfix.patches.sglang import draft_extend_triton as triton
from attnfix.patches.sglang.draft_extend_graph import ROOM, STRIDE

MODULES, MAY_LACK, prepare = triton.MODULES, triton.MAY_LACK, triton.prepare
KERNEL = "interpreted"


def scenario(seed: int) -> Observation:
    return _run(seed, "DRAFT_EXTEND_V2")


def control(seed: int) -> Observation:
    """A verification, which counts its own tokens only afterwards."""
    return _run(seed, "TARGET_VERIFY")


def _run(seed: int, mode: str) -> Observation:
    import torch

    draw = torch.Generator().manual_seed(seed)
    step = triton.Step(mode, draw)
    batches = (replace(graphs.uneven(draw, count), accepted=(STRIDE,) * count) for count in range(1, ROOM + 1))
    return combine(*(seen for batch in batches for seen in step(batch)))


def sabotages() -> dict[str, Any]:
    from . import wrap

    real = wrap.cached

    def first_missed(seq_lens: Any, new: Any) -> Any:
        lens = real(seq_lens, new)
        lens[0] = seq_lens[0]
        return lens

    ways = {
        "the correction does nothing": lambda seq_lens, new: seq_lens,
        "one request keeps its length": first_missed,
        "a cached token is forgotten": lambda seq_lens, new: real(seq_lens, new + 1),
        "one new token counts as cached": lambda seq_lens, new: real(seq_lens, new - 1),
    }
    return {name: replaced(wrap, "cached", way) for name, way in ways.items()}
