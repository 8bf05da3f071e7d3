"""From figures to a verdict: what a healthy server may show, and how sure it is that this one shows more.

The unit is the prompt. A prompt exceeds where its answer moved further than the margin. In a healthy server at most one in
twenty does: that is the null hypothesis. Against it each relation has an e-process, a bet that pays when prompts exceed. It may
be looked at after every prompt, and stays valid: the chance that it ever reaches 1/alpha is at most alpha.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HOLDS, BROKEN, UNCLEAR = "holds", "broken", "unclear"
#: Chance that a healthy server is called broken, over all relations
FALSE_ALARM = 0.001
_SHARE = 0.05  # of prompts that may exceed in a healthy server
_BETS = (2.0, 6.0, 15.0)  # each below 1 / _SHARE
LEAST = 5  # prompts, without which there is no verdict
MORE = 4  # times the prompts, where some exceed and it is not clear whether by chance
MOST = 16  # times the prompts, as long as they speak against the server: a fault in one prompt of five is seen then
_UNKNOWN = 1.0  # nat, the largest margin where nobody says whether the model has experts
_TIMES = 2.0  # the floor, for the margin


@dataclass(frozen=True)
class Margin:
    """nat: how far a prompt may move. why: for a user."""

    nat: float
    floor: float
    why: str


def margin(floor: Sequence[float], kv_dtype: str | None, config: Mapping[str, Any] | None) -> Margin:
    """Twice the floor, but no less than what healthy servers of that kind showed. And no more than four times that, or than
    1 nat of a model of unknown kind: the fault may sit in the floor.

    Healthy, vLLM 0.33.0 on an H200: dense and MLA up to 0.07, an FP8 MLA cache up to 0.37, MoE with random weights up to 0.44.
    """
    usual, what = 0.08, "a dense model and a cache of 16 bits"
    if kv_dtype and "fp8" in kv_dtype.lower():
        usual, what = 0.45, f"a cache of {kv_dtype}"
    if _experts(config):
        usual, what = max(usual, 0.5), "a model with experts"
    highest = max(floor, default=0.0)
    most = 4 * usual if config else max(_UNKNOWN, usual)
    nat = min(max(usual, _TIMES * highest), most)
    return Margin(nat, highest, f"{usual:g} nat is usual for {what}" + ("" if config else "; --config would say more"))


def _experts(config: Mapping[str, Any] | None) -> bool:
    text = (config or {}).get("text_config") or config or {}
    if text.get("first_k_dense_replace", 0) >= text.get("num_hidden_layers", 1):
        return False
    return any(text.get(name) for name in ("num_experts", "n_routed_experts", "num_local_experts"))


@dataclass
class Tally:
    """One relation: the figures of its prompts, and why others have none. parts: of each prompt, the figure of each of the
    relation's circumstances. lost: by the number of the prompt, the name that it asked for and did not get."""

    relation: str
    moved: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)

    def take(self, parts: Sequence[tuple[str, float, str]]) -> None:
        """One prompt: (circumstance, figure, lost name) of each part."""
        if names := [name for _, _, name in parts if name]:
            self.lost[len(self.moved)] = names[0]
        self.moved.append(max(figure for _, figure, _ in parts))
        worst: dict[str, float] = {}
        for at, figure, name in parts:
            worst[at] = max(worst.get(at, 0.0), math.inf if name else figure)
        self.parts.append(worst)

    def evidence(self, nat: float) -> float:
        return e_value(self.exceeded(nat), len(self.moved))

    def exceeded(self, nat: float) -> int:
        """Prompts that moved further, or forgot what they had been told."""
        return sum(figure > nat or at in self.lost for at, figure in enumerate(self.moved))

    def where(self, nat: float) -> list[dict[str, Any]]:
        """Under which of the relation's circumstances, where it has several."""
        asked = Counter(at for parts in self.parts for at in parts if at)
        beyond = Counter(at for parts in self.parts for at, figure in parts.items() if figure > nat)
        return [{"at": at, "prompts": count, "exceeded": beyond[at]} for at, count in asked.items()]

    def speaks_against(self, nat: float) -> bool:
        """More exceed than a healthy server would show, be it by chance."""
        return self.evidence(nat) > 1


def e_value(exceeded: int, prompts: int) -> float:
    """The mean of three bets on each prompt. Whoever bets more wins sooner where all exceed, and loses where few do."""
    bets = ((1 + bet * (1 - _SHARE)) ** exceeded * (1 - bet * _SHARE) ** (prompts - exceeded) for bet in _BETS)
    return statistics.fmean(bets)


def broken(tallies: Sequence[Tally], nat: float) -> set[str]:
    """The relations that do not hold, by Holm's rule for e-values."""
    found: set[str] = set()
    for tally in sorted(tallies, key=lambda each: -each.evidence(nat)):
        if tally.evidence(nat) < (len(tallies) - len(found)) / FALSE_ALARM:
            break
        found.add(tally.relation)
    return found


def smallest(prompts: int, relations: int) -> float | None:
    """The smallest share of prompts beyond the margin that is called broken in 95 of 100 runs that begin with so many prompts;
    None: there is none.

    One of the first prompts must exceed, so that more are asked, and then enough of all: a bound on both chances together. What
    is asked beyond `MORE` times the prompts is not counted here: it needs what came before to speak against the server.
    """
    whole = prompts * MORE
    needed = next((k for k in range(1, whole + 1) if e_value(k, whole) >= relations / FALSE_ALARM), whole + 1)
    for percent in range(1, 101):
        share = percent / 100
        too_few = sum(math.comb(whole, k) * share**k * (1 - share) ** (whole - k) for k in range(needed))
        if needed <= whole and (1 - share) ** prompts + too_few <= 0.05:
            return share
    return None


def row(tally: Tally, tallies: Sequence[Tally], margin_: Margin) -> dict[str, Any]:
    """What is told of a relation."""
    nat, count = margin_.nat, len(tally.moved)
    exceeded = tally.exceeded(nat)
    share = smallest(count, len(tallies)) if count else None
    if tally.relation in broken(tallies, nat):
        verdict, reason = BROKEN, f"{exceeded} of {count} prompts moved by more than {nat:.2g} nat"
    elif count < LEAST:
        why = tally.missed[-1] if tally.missed else "the budget was spent"
        verdict, reason = UNCLEAR, f"{count} prompts asked, a verdict needs {LEAST}: {why}"
    elif exceeded > max(_SHARE * count, 0):
        verdict, reason = UNCLEAR, f"{exceeded} of {count} prompts moved by more than {nat:.2g} nat, which may be chance"
    elif share is None:
        verdict, reason = UNCLEAR, f"{count} prompts are too few for {len(tallies)} relations"
    else:
        verdict = HOLDS
        reason = f"a fault that moves {share:.0%} of prompts by more than {nat:.2g} nat would have been seen"
    return {
        "relation": tally.relation,
        "verdict": verdict,
        "worst": _finite(max(tally.moved, default=None)),
        "median": _finite(statistics.median(tally.moved)) if tally.moved else None,
        "prompts": count,
        "exceeded": exceeded,
        "moved": [_finite(figure) for figure in tally.moved],
        "where": tally.where(nat),
        "lost": list(tally.lost.values()),
        "reason": reason,
    }


def _finite(figure: float | None) -> float | str | None:
    if figure is None:
        return None
    return round(figure, 6) if math.isfinite(figure) else "not finite"
