"""Proof of vllm.gdn-fewer-drafts: verified requests of different lengths, alone and beside others; then their next steps.

Real: all of the lab's, in some cases with the buffers of full graphs. Emulated: kernels, in layers over as many tokens as a
padded step has. Spared: verifications of all drafts, short prompts beside them, and steps without drafts.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.gated_delta import case, step, verify
from attnfix.patches.lab.vllm.gdn_layer import GatedDeltaLayer

from . import wrap

#: One after the other: prompts of one step are another bug
_TWO, _ALL = (step(a=20), step(b=9)), step(a=verify(), b=verify())


def _first(real: Any, lengths: list[int], length: int, starts: Any) -> Any:
    rows, places = real(lengths, length, starts)
    return rows[:1], places[:1]


def _reverse(real: Any, lengths: list[int], length: int, starts: Any) -> Any:
    rows, places = real(lengths, length, starts)
    return rows, places.flip(1)


def _next(real: Any, lengths: list[int], length: int, starts: Any) -> Any:
    rows, places = real(lengths, length, starts)
    return (rows + 1) % len(lengths), places


class Proof(GatedDeltaLayer):
    needs = "GDNAttentionMetadataBuilder.build: num_draft_tokens"
    absent = "Gated DeltaNet's convolution takes requests of different lengths"
    bug = (
        case(*_TWO, step(a=verify(1), b=verify()), _ALL, step(a=verify(), b=verify(2)), drafts=3),
        case(*_TWO, step(a=verify(), b=verify(1), c=9), step(c=verify(1), a=verify(), b=verify()), _ALL, drafts=2),
        case(*_TWO, step(a=verify(1), b=verify(1)), _ALL, drafts=3, graphs=True),
        case(*_TWO, _ALL, step(a=verify(2), b=verify(1)), _ALL, drafts=3, graphs=True),
        case(
            *_TWO, step(c=7), step(a=verify(1), b=verify(1), c=verify(1)), step(a=verify(), b=verify(3), c=verify(2)), drafts=4
        ),
        case(*_TWO, step(a=verify(2), c=3, b=verify(2)), _ALL, drafts=4),
    )
    spared = (
        case(*_TWO, _ALL, step(a=verify(), c=3, b=verify()), step(c=verify(), a=verify()), drafts=3),
        case(step(a=4), step(a=verify(), b=2), step(b=3), drafts=2),
        case(*_TWO, _ALL, step(a=verify()), _ALL, drafts=1, graphs=True),
        case(*_TWO, step(a=verify(2), b=verify(2)), step(b=verify(1)), _ALL, drafts=3),
    )
    broken = {
        "one request of a length alone is convolved": (wrap.grouped, _first),
        "tokens of a request are in reverse order": (wrap.grouped, _reverse),
        "slots are those of the next request": (wrap.grouped, _next),
    }
