"""Makes a case as small as it can be while the same goes wrong: fewer requests and steps, shorter ones, plainer settings."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator

from . import space
from .protocol import Case


def shrink(case: Case, still: Callable[[Case], bool], seconds: float = 600) -> Case:
    """`still`: whether a case goes wrong in the same way."""
    until, smaller = time.monotonic() + seconds, True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if time.monotonic() > until:
                return case
            if still(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """The largest steps first."""
    for at in range(len(case["requests"])):
        if len(case["requests"]) > 1:
            yield _without(case, at)
    for steps in sorted({case["steps"] // 2, case["steps"] - 1}):
        if steps >= 1:
            yield {**case, "steps": steps}
    axes = space.space_of(case["engine"]).axes
    for name, values in axes.items():
        if space._plain(case["settings"][name]) != space._plain(values[0]):
            yield {**case, "settings": {**case["settings"], name: space._plain(values[0])}}
    for at, request in enumerate(case["requests"]):
        changes: list[dict[str, object]] = [{"common": None}] if request["common"] else []
        changes += [{"arrives": 0}] if request["arrives"] else []
        for part in ("output", "prompt"):
            value = request[part]  # type: ignore[literal-required]
            changes += [{part: less} for less in sorted({1, value // 2, value - 1}) if 1 <= less < value]
        for change in changes:
            other = copy.deepcopy(case)
            other["requests"][at].update(change)  # type: ignore[typeddict-item]
            yield other


def _without(case: Case, at: int) -> Case:
    """Without one request; who began as that one did begins as nobody."""
    requests = []
    for number, request in enumerate(case["requests"]):
        if number == at:
            continue
        common = request["common"]
        if common:
            common = None if common[0] == at else [common[0] - (common[0] > at), common[1]]
        requests.append({**request, "common": common})
    return {**case, "requests": requests}  # type: ignore[typeddict-item]
