"""Proof of vllm.padded-tail-clip: whose outputs a request gets of whose prompt one token was left where a block ends.

Spared: the same beside nobody, rows that end before their block does, and servers whose states are not kept by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from attnfix.patches.lab.vllm.scheduling import QWEN3_NEXT, SCHEDULER, case
from attnfix.patches.lab.vllm.states import Ended, Runner, States, arrivals, within_a_block

from . import wrap

_SPLIT = f"{SCHEDULER}:Scheduler._mamba_block_aligned_split"
#: Where each chunk ends with its block, whatever the drafter (from 0.27.0 on)
EACH_BLOCK = f"{_SPLIT}: prefill_end"
NGRAM = {"method": "ngram", "prompt_lookup_max": 4}
#: Lengths of prompts: blocks of 16 end with the last token, or with the first or the second placeholder
WITH_TOKEN, WITH_PLACEHOLDER = (16, 32, 48), (14, 15, 16, 30, 31, 47)
BROUGHT = dict(model=QWEN3_NEXT, brought=True)


class _Runner(Runner):
    """With drafts, the engine reads as many outputs of a row as it has drafts, and one: they end with the row's last one."""

    def step(self) -> Any:
        try:
            return super().step()
        except AssertionError as assertion:  # the scheduler took back placeholders that it had not scheduled
            self.misled = True
            raise Ended from assertion

    def _tokens(self, name: str, count: int, drafts: int) -> list[int]:
        running = self.requests[name]
        row = running.known[running.computed : running.computed + count]
        return row + self.words(count - len(row))

    def _layer(self, names: list[str], rows: dict[str, list[int]], drafts: dict[str, int]) -> dict[str, list[int]]:
        after: dict[str, list[int]] = super()._layer(names, rows, drafts)
        outputs = [output for name in names for output in after[name]]
        ends = dict(zip(names, accumulate(len(rows[name]) for name in names)))
        clipped = [name for name in names if len(rows[name]) <= drafts[name]]
        return after | {name: [outputs[at] for at in range(ends[name] - 1 - drafts[name], ends[name])] for name in clipped}


def begin(lengths: Sequence[int], **more: Any) -> Any:
    """Prompts of these lengths, one by one and two at a time, beside a request that decodes all the time."""
    return arrivals({3: (lengths,), 5: (lengths, lengths), 6: (lengths,), 9: (lengths,)}, beside=(20,), **more)


def ngram(lengths: tuple[int, ...], drafts: int, **more: Any) -> Any:
    return case(begin(lengths), **BROUGHT, drafts=drafts, mode="align", speculative=NGRAM, **more)


def mtp(lengths: tuple[int, ...], drafts: int, where: str = EACH_BLOCK, mode: str = "align", **more: Any) -> Any:
    return case(begin(lengths), where, **BROUGHT, drafts=drafts, mode=mode, **more)


class Proof(States):
    needs = "Scheduler.schedule: pad_spec_decode"
    absent = "the last token of a prompt is not padded"
    kind = _Runner
    bug = (
        ngram(WITH_TOKEN, 1),
        ngram(WITH_TOKEN, 3, max_tokens=64),
        mtp(WITH_TOKEN, 2),
        mtp(WITH_PLACEHOLDER, 3),
        mtp(WITH_PLACEHOLDER, 3, ahead=True),
    )
    spared = (
        ngram((5, 17, 35), 3),
        mtp((5, 17, 35), 3, where=""),
        mtp(WITH_PLACEHOLDER, 3, where="", mode="none"),
        case(begin(range(2, 70), fit=within_a_block), model=QWEN3_NEXT, drafts=3, mode="align", max_tokens=32),
        case(arrivals({3: (16,), 12: (15,)}, answer=(4,)), **BROUGHT, drafts=3, mode="align"),
    )
    broken = {
        "the row stays clipped": (wrap.unclipped, lambda real, clipped, asked: clipped),
        "a placeholder is missing": (wrap.unclipped, lambda real, clipped, asked: max(clipped, asked - 1)),
    }
