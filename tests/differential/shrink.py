"""Makes a case as small as it can be while the same goes wrong: fewer requests and steps, shorter ones, plainer settings.

An evaluation takes seconds, so their number counts. Everything that can be made plainer is made so at once; where that goes too
far, by halves (as delta debugging does), so that a setting which matters costs a logarithm of evaluations, and all that do not
matter cost one. Numbers are bisected. Why not by hypothesis: docs/decisions/0032-cases-are-shrunk-by-halves.md.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import space
from .protocol import Case

#: The plainest values of a request's fields; without a value, it does not have the field
_PLAINEST: dict[str, Any] = {"common": None, "arrives": 0, "output": 1, "adapter": None, "image": None}
LEFT_OUT = {"adapters": "adapter", "images": "image"}  # axis -> what no request has where the axis is plain
#: A way to make a case smaller: what it is, and where. ("drop", request), ("plain", axis), (part, request): part of a request
Way = tuple[str, Any]


class _Spent(Exception):
    """The budget is."""


class Shrinking:
    """still: whether a case goes wrong in the same way. say: gets every smaller case as soon as it is known to."""

    def __init__(
        self, case: Case, still: Callable[[Case], bool], *, seconds: float = 600, evaluations: int = 400,
        say: Callable[[Case], None] = lambda case: None,
    ):  # fmt: skip
        self.best, self.evaluations = space._plain(case), 0
        self._still, self._say, self._most, self._until = still, say, evaluations, time.monotonic() + seconds
        self._space = space.space_of(case["engine"])
        self._known: dict[str, bool] = {}

    def run(self) -> Case:
        """The smallest case that was found within the budget."""
        try:
            before = None
            while before != self.best:
                before = self.best
                self._bisect("steps", None)  # first: with fewer steps every evaluation takes less time
                self._halve(self._ways())
                for at in range(len(self.best["requests"])):
                    for part in ("prompt", "output"):
                        self._bisect(part, at)
        except _Spent:
            pass
        return self.best

    def _take(self, candidate: Case) -> bool:
        """Whether it goes wrong, too; then it is the best."""
        key = json.dumps(candidate, sort_keys=True)
        if key not in self._known:
            if space.why_not(self._space, candidate["release"], candidate["settings"]):
                return False
            if self.evaluations >= self._most or time.monotonic() > self._until:
                raise _Spent
            self.evaluations += 1
            self._known[key] = self._still(candidate)
        if self._known[key] and candidate != self.best:
            self.best = candidate
            self._say(candidate)
        return self._known[key]

    # many at once

    def _ways(self) -> list[Way]:
        """Those that would change something. Requests are the last to go: they are named by their places."""
        ways: list[Way] = [
            ("plain", name)
            for name, values in self._space.axes.items()
            if space._plain(self.best["settings"][name]) != space._plain(values[0])
        ]
        for at, request in enumerate(self.best["requests"]):
            ways += [(part, at) for part, value in _PLAINEST.items() if request.get(part) != value]
        return ways + [("drop", at) for at in range(len(self.best["requests"]))]

    def _halve(self, ways: Sequence[Way]) -> None:
        base, done = self.best, []  # type: ignore[var-annotated]

        def go(some: Sequence[Way]) -> None:
            if self._take(self._smaller(base, [*done, *some])):
                done.extend(some)
            elif len(some) > 1:
                middle = len(some) // 2
                go(some[:middle])
                go(some[middle:])

        if ways:
            go(ways)

    def _smaller(self, case: Case, ways: Sequence[Way]) -> Case:
        case = copy.deepcopy(case)
        dropped = {at for what, at in ways if what == "drop"}
        if len(dropped) == len(case["requests"]):
            dropped.discard(len(case["requests"]) - 1)  # one stays
        for what, at in ways:
            if what == "plain":
                case["settings"][at] = space._plain(self._space.axes[at][0])
                for request in case["requests"] if at in LEFT_OUT else ():
                    request.pop(LEFT_OUT[at], None)  # type: ignore[misc]
            elif what in LEFT_OUT.values():
                case["requests"][at].pop(what, None)  # type: ignore[misc]
            elif what != "drop":
                case["requests"][at][what] = _PLAINEST[what]  # type: ignore[literal-required]
        return without(case, dropped)

    # one number

    def _bisect(self, part: str, at: int | None) -> None:
        """The smallest value, if every larger one up to what it is now goes wrong; else a smaller one."""

        def set_to(value: int) -> Case:
            case = copy.deepcopy(self.best)
            holder: Any = case if at is None else case["requests"][at]
            holder[part] = value
            for request in case["requests"]:  # nobody begins as more than there is, and images are of the prompt
                if image := request.get("image"):
                    if image[0] >= request["prompt"]:
                        del request["image"]
                    else:
                        request["image"] = [image[0], min(image[1], request["prompt"] - image[0]), image[2]]
                if request["common"]:
                    other = case["requests"][request["common"][0]]
                    least = min(request["common"][1], request["prompt"], other["prompt"] + other["output"] - 1)
                    request["common"] = [request["common"][0], least]
            return case

        high: int = self.best[part] if at is None else self.best["requests"][at][part]  # type: ignore[literal-required]
        if high > 1 and self._take(set_to(1)):
            return
        low = 1  # which does not go wrong
        while high - low > 1:
            middle = (low + high) // 2
            if self._take(set_to(middle)):
                high = middle
            else:
                low = middle


def without(case: Case, dropped: set[int]) -> Case:
    """Without these requests; who began as one of them did begins as nobody."""
    place = {at: new for new, at in enumerate(at for at in range(len(case["requests"])) if at not in dropped)}
    requests = []
    for at, request in enumerate(case["requests"]):
        if at not in dropped:
            common = request["common"]
            if common:
                common = [place[common[0]], common[1]] if common[0] in place else None
            requests.append({**request, "common": common})
    return {**case, "requests": requests}  # type: ignore[typeddict-item]


def shrink(case: Case, still: Callable[[Case], bool], **budget: Any) -> Case:
    return Shrinking(case, still, **budget).run()
