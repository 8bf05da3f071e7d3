"""Conversations of several turns, all at once, whose earlier turns are cached: what gpu_e2e cases of hybrid models ask.

What a turn was answered with is compared with what the same prompt is answered with alone and with nothing cached. Where that
differs by more than rounding, the request continued from what is not the state, or are not the keys, of its prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scripts.serve import e2e

#: Differences of two log-probabilities: what rounding does at most (a state that grew token by token, against chunks), and from
#: where on it is the fault
ROUNDING, RED = 0.5, 1.0
#: (prompts, new tokens of each) -> for each its tokens, the log-probabilities of the first, and how many tokens were cached
Answer = Callable[[list[list[int]], list[int]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Talk:
    """first, answer: tokens of each conversation's first prompt and of its answers; more: of what is said then."""

    first: tuple[int, ...]
    answer: tuple[int, ...]
    more: int
    turns: int
    vocabulary: int

    def __call__(self, answer: Answer, forget: Callable[[], Any], seed: int = 24) -> dict[str, Any]:
        """each: every turn, in order. floor: the largest difference of turns that found nothing cached; worst: of the others.
        red: how many of those are wrong."""
        draw = random.Random(seed)
        said, asked = [self._words(draw, count) for count in self.first], []
        forget()
        for turn in range(self.turns):
            answers = answer(said, list(self.answer))
            asked += [(turn, prompt, one) for prompt, one in zip(said, answers)]
            said = [prompt + one["tokens"] + self._words(draw, self.more) for prompt, one in zip(said, answers)]
        each = []
        for turn, prompt, one in asked:
            forget()
            (cold,) = answer([prompt], [1])
            each.append({"turn": turn, "tokens": len(prompt), "cached": one["cached"], **e2e.compare(cold, one)})
        hits, others = ([one for one in each if bool(one["cached"]) is hit] for hit in (True, False))
        worst, floor = (max((one["difference"] for one in some), default=0.0) for some in (hits, others))
        red = sum(not one["difference"] <= RED for one in hits)
        return {"each": each, "hits": len(hits), "red": red, "worst": worst, "floor": floor}

    def _words(self, draw: random.Random, count: int) -> list[int]:
        return [draw.randrange(2, self.vocabulary) for _ in range(count)]


def table(found: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<12}{'hits':>6}{'wrong':>7}{'largest difference':>20}{'nothing cached':>16}"]
    for name, side in found.items():
        lines.append(f"{name:<12}{side['hits']:>6}{side['red']:>7}{side['worst']:>20.4g}{side['floor']:>16.4g}")
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines


def failures(found: dict[str, Any], fixes: tuple[str, ...]) -> list[str]:
    """One sentence for each check that does not hold. Where nothing was corrected, stock must be right."""
    wrong = [f"{name}: no turn found an earlier one in the cache" for name, side in found.items() if not side["hits"]]
    corrected = any(e2e.corrections(found[e2e.PATCHED]["processes"], fix) for fix in fixes)
    if corrected and not found[e2e.STOCK]["red"]:
        wrong.append(f"stock: cached and uncached differ by no more than {found[e2e.STOCK]['worst']:.3g}")
    for name in (e2e.PATCHED,) if corrected else (e2e.PATCHED, e2e.STOCK):
        if not found[name]["worst"] <= ROUNDING:
            wrong.append(f"{name}: cached and uncached differ by {found[name]['worst']:.3g}")
    return wrong
