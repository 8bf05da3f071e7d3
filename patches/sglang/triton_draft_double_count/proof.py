"""Proof of sglang.triton-draft-double-count: draft extend of one to eight requests through graphs captured for fewer sizes.

What is real and what is emulated stands in `patches/lab/sglang/draft_extend_triton.py`. Every token is accepted: then
0.5.8 and 0.5.9, whose layout of the queries follows accept lengths (sglang.uniform-replay-stride-triton), lay them out rightly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.sglang import draft_extend_triton as triton
from attnfix.patches.lab.sglang.draft_extend_graph import STRIDE, Requests


class Proof(triton.DraftExtend):
    """A verification counts its own tokens only afterwards."""

    def requests(self, draw: Any, count: int) -> Requests:
        return replace(super().requests(draw, count), accepted=(STRIDE,) * count)

    def sabotages(self) -> dict[str, Any]:
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
