"""The whole of it: calibrate, ask round by round, decide, and say what that costs the server."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import verdicts
from .answers import Died, Refused
from .client import Facts, Server
from .prompts import Prompts
from .relations import Circumstances, Sizes
from .verdicts import Tally

_CALIBRATION = 4  # prompts
_LOOKS = 6  # at who answers: of two servers one alone answers so often by chance in 3 % of cases
#: Why nothing is asked of them
SEVERAL = "several servers answer at this address: name one of them"
_FACTOR = 50  # tokens sent for a prompt, about, in lengths of a prompt


@dataclass(frozen=True)
class Plan:
    """tokens, seconds: the budget. share: of the KV cache that may be in flight. length: of a prompt, 0: chosen here."""

    prompts: int = 8
    tokens: int = 1_000_000
    seconds: float = 600
    concurrency: int = 8
    share: float = 0.25
    length: int = 0
    relations: tuple[str, ...] = ()
    limits: bool = False
    seed: int | None = None
    config: Mapping[str, Any] | None = None


def sizes(facts: Facts, plan: Plan) -> Sizes:
    """As long as chunks are met, as short as the budget, the context limit and the share of the cache ask for."""
    wished = plan.length or max(2048, 2 * facts.chunk + 300 if facts.chunk else 0)
    flight = int(facts.capacity * plan.share) if facts.capacity else 64 * 1024
    afford = plan.tokens // (_FACTOR * plan.prompts)
    length = min(wished, flight // 2, afford, (facts.longest or wished + 96) - 96)
    length = max(2, min(max(length, 3 * facts.block, 48), (facts.longest or 1 << 20) - 80, max(plan.tokens, 48)))
    return Sizes(length, plan.concurrency, max(flight, 2 * length))


class Run:
    """step is called with (rounds done, rounds planned, what is asked next)."""

    def __init__(self, server: Server, plan: Plan, step: Callable[[int, int, str], None] = lambda *_: None):
        draw = random.Random(plan.seed)  # without a seed from the system: a nonce must be new
        self.server, self.plan, self.step = server, plan, step
        text = (plan.config or {}).get("text_config") or plan.config or {}
        server.facts.window = server.facts.window or text.get("sliding_window")
        self.sizes = sizes(server.facts, plan)
        self.asker = Circumstances(server, Prompts(draw, server.tokenize), self.sizes, draw, plan.limits)
        self.tallies = [Tally(name) for name in plan.relations or self.asker.relations]
        self.floor: list[float] = []
        self.died: Died | None = None
        self.several = False  # servers have answered
        self._began = time.monotonic()

    def __call__(self) -> dict[str, Any]:
        try:
            self.several = self.server.several(_LOOKS)
            if self.several:
                for tally in self.tallies:
                    tally.missed.append(SEVERAL)
            else:
                self._calibrate()
                self._ask()
                self.server.must_live()
                self.several = self.server.several()
        except Died as error:
            self.died = error
            for tally in self.tallies:
                tally.missed = tally.missed or ["the server had died"]
        return self._told()

    def _calibrate(self) -> None:
        self.step(0, self.plan.prompts, "what may be cached, and how far batch shapes move an answer")
        self.asker.check_salts()
        if self.asker.salts:
            for at in range(_CALIBRATION):  # lengths of which some meet in one step
                self.floor += self.asker.floor(max(16, min(self.sizes.length, 160 << at)))

    @property
    def margin(self) -> verdicts.Margin:
        flags = self.server.facts.flags
        dtype = flags.get("kv_cache_dtype") or flags.get("cache_dtype")
        return verdicts.margin(self.floor, str(dtype) if dtype else None, self.plan.config)

    def _ask(self) -> None:
        nat, rounds = self.margin.nat, 0
        while not self._spent():
            open_ = self._open(rounds, nat)
            if not open_:
                break
            self.step(min(rounds, self.plan.prompts - 1), self.plan.prompts, "a prompt, cold and alone")
            try:
                reference = self.asker.reference()
            except Refused as error:
                for tally in open_:
                    tally.missed.append(str(error))
                if rounds >= self.plan.prompts - 1:
                    break
                rounds += 1
                continue
            for tally in open_:
                if self._spent():
                    break
                self.step(min(rounds, self.plan.prompts - 1), self.plan.prompts, tally.relation)
                seen = self.asker.look(tally.relation, reference)
                figures = [(each.at, each.moved, each.lost) for each in seen if each.moved is not None]
                if figures:
                    tally.take(figures)
                else:
                    tally.missed.append(seen[0].why)
            rounds += 1

    def _open(self, rounds: int, nat: float) -> list[Tally]:
        """The relations of which more should be known."""
        gone = verdicts.broken(self.tallies, nat)
        left = [tally for tally in self.tallies if tally.relation not in gone and len(tally.missed) < verdicts.LEAST]
        if rounds < self.plan.prompts:
            return left
        if rounds < self.plan.prompts * verdicts.MORE:
            return [tally for tally in left if tally.exceeded(nat)]
        if rounds < self.plan.prompts * verdicts.MOST:
            return [tally for tally in left if tally.speaks_against(nat)]
        return []

    def _spent(self) -> bool:
        return self.server.tokens >= self.plan.tokens or time.monotonic() - self._began >= self.plan.seconds

    def _told(self) -> dict[str, Any]:
        facts, margin = self.server.facts, self.margin
        rows = [verdicts.row(tally, self.tallies, margin) for tally in self.tallies]
        speculates = None if self.died or self.several else self.server.speculates()
        said = verdict(rows, self.died)
        if (said == verdicts.HOLDS and speculates is False) or (self.several and not self.died):
            said = verdicts.UNCLEAR
        return {
            "engine": facts.engine,
            "release": facts.release,
            "model": facts.model,
            "attnfix_fixes": list(facts.fixes),
            "verdict": said,
            "several_servers": self.several,
            "speculation": {None: "off", True: "on", False: "not seen"}[speculates],
            "relations": rows,
            "floor": margin.floor,
            "floors": [round(figure, 6) for figure in self.floor if math.isfinite(figure)],
            "margin": margin.nat,
            "margin_reason": margin.why,
            "false_alarm": verdicts.FALSE_ALARM,
            "died": {**self.died.question, "reason": str(self.died)} if self.died else None,
            "prompt": {"tokens": self.sizes.length, "natural": self.asker.prompts.natural, "needles": self.asker.needles},
            "load": {
                "requests": self.server.asked,
                "tokens": self.server.tokens,
                "seconds": round(time.monotonic() - self._began, 1),
                "at_once": self.sizes.width,
            },
        }


def verdict(rows: Sequence[Mapping[str, Any]], died: Died | None) -> str:
    """Of the whole: broken where one relation is, or the server died; holds where all hold."""
    found = {row["verdict"] for row in rows}
    if died or verdicts.BROKEN in found:
        return verdicts.BROKEN
    return verdicts.HOLDS if found == {verdicts.HOLDS} else verdicts.UNCLEAR
