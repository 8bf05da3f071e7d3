"""Draws cases: settings so that every pair of them occurs early, and requests whose lengths sit on the edges."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from .protocol import Case, Request, Settings, Space

#: ((axis, index of a value), (another axis, index of a value))
Pair = tuple[tuple[str, int], tuple[str, int]]

_CANDIDATES = 12  # of which the one is taken that has the most new pairs
_INTERPRETED = 4  # at most one case of so many runs in Triton's interpreter


def space_of(engine: str) -> Space:
    found: Space = importlib.import_module(f"tests.differential.{engine}.space").SPACE
    return found


def tried_in(fix: str) -> Settings:
    """The settings that a fix must be tried in. Raises ValueError where no settings of the space reach it."""
    from tests.fixes.rows import DIFFERENTIAL  # the catalogue, which a side's process has no need of

    settings: Settings | str = DIFFERENTIAL[fix]
    if isinstance(settings, str):
        raise ValueError(f"{fix}: {settings}")
    return settings


def whole(case: Case) -> Case:
    """With the plainest value of each setting that the space had not yet when the case was kept."""
    plainest = {name: _plain(values[0]) for name, values in space_of(case["engine"]).axes.items()}
    return {**case, "settings": plainest | case["settings"]}


def version(space: Space) -> str:
    """Of the axes and their values: figures of two versions do not add up."""
    return hashlib.sha256(json.dumps({name: list(values) for name, values in space.axes.items()}).encode()).hexdigest()[:12]


def why_not(space: Space, release: str, settings: Settings) -> str | None:
    """Why such a case is not drawn for a release, or None."""
    return space.impossible(settings) or space.refused(release, settings)


def pairs_of(space: Space, settings: Settings) -> set[Pair]:
    at = [(name, _index(values, settings[name])) for name, values in space.axes.items()]
    return set(combinations(at, 2))


def all_pairs(space: Space, release: str) -> set[Pair]:
    """Those that are possible in a release."""
    same = space.of_release(release)
    every = [[(name, index) for index in range(len(values))] for name, values in space.axes.items()]
    pairs = {pair for one, other in combinations(every, 2) for pair in ((a, b) for a in one for b in other)}
    found = ((pair, _values(space, pair)) for pair in pairs)
    return {pair for pair, values in found if same | values == values | same and not why_not(space, release, same | values)}


def possible_pairs(space: Space, release: str) -> set[Pair]:
    """Those of `all_pairs` that no third setting rules out, whatever its value is. Draws go by `all_pairs`: what a seed draws
    stays."""
    given = space.of_release(release)

    def goes_with_all(pair: Pair) -> bool:
        settings = given | _values(space, pair)
        others = (name for name in space.axes if name not in settings)
        return all(any(not why_not(space, release, {**settings, name: value}) for value in space.axes[name]) for name in others)

    return set(filter(goes_with_all, all_pairs(space, release)))


def cases(engine: str, release: str, seed: int, axes: dict[str, Any] | None = None) -> Iterator[tuple[int, Case]]:
    """Without end. Which case comes at which index follows from the seed alone. axes: settings that are the same in all."""
    space, index = space_of(engine), 0
    axes = space.of_release(release) | (axes or {})
    missing = all_pairs(space, release)
    if axes:
        missing = {pair for pair in missing if all(axes.get(name, v := space.axes[name][at]) == v for name, at in pair)}
    tried: dict[Pair, int] = {}
    while True:
        draw = random.Random(f"{seed} {index}")
        slow = index % _INTERPRETED == _INTERPRETED - 1
        settings = _settings(space, release, draw, missing, slow, axes)
        for pair in pairs_of(space, settings) & missing:
            missing.discard(pair)
        for pair in [pair for pair in missing if tried.get(pair, 0) > 40]:
            missing.discard(pair)  # in every one of many attempts impossible together with what is drawn beside it
        if missing:
            for pair in draw.sample(sorted(missing), min(1, len(missing))):
                tried[pair] = tried.get(pair, 0) + 1
        yield index, _case(engine, release, space, settings, draw)
        index += 1


def _settings(
    space: Space, release: str, draw: random.Random, missing: set[Pair], slow: bool, fixed: dict[str, Any]
) -> Settings:
    found: list[Settings] = []
    slower: list[Settings] = []  # what is fixed may leave no others
    wanted = draw.choice(sorted(missing)) if missing else ()
    first = {name: space.axes[name][index] for name, index in wanted if name not in fixed}
    for attempt in range(4_000):
        if attempt >= 60 and (found or slower):
            break
        settings = _possible(space, release, draw, fixed | first if attempt < 30 else fixed)
        if settings is None:
            continue
        if space.interpreted(settings) and not slow:
            slower.append(settings)
            continue
        found.append(settings)
        if len(found) >= (_CANDIDATES if missing else 1):
            break
    found = found or slower[:_CANDIDATES]
    if not found:
        raise ValueError("no possible settings were drawn")
    return max(found, key=lambda settings: len(pairs_of(space, settings) & missing)) if missing else found[0]


def _possible(space: Space, release: str, draw: random.Random, given: Settings) -> Settings | None:
    """Axis by axis in any order, each of the values that the others leave it: if all were drawn at once and thrown away where
    they are impossible, there would be hardly any with much that goes with little, such as latent attention or ranks. None
    where no value is left."""
    settings = dict(given)
    names = [name for name in space.axes if name not in given]
    draw.shuffle(names)
    for name in names:
        values = draw.sample(space.axes[name], len(space.axes[name]))
        left = (value for value in values if not why_not(space, release, {**settings, name: value}))
        if (value := next(left, None)) is None and None not in values:
            return None
        settings[name] = value
    return None if why_not(space, release, settings) else {name: settings[name] for name in (*space.axes, *given)}


def _case(engine: str, release: str, space: Space, settings: Settings, draw: random.Random) -> Case:
    limit = space.limit(settings)
    lengths = sorted({near for edge in space.edges(settings) for near in (edge - 1, edge, edge + 1) if 1 <= near < limit})
    requests: list[Request] = []
    crowd, often = space.crowd(settings), space.often(settings)
    for number in range(draw.randint(8, 10) if crowd else draw.randint(1, 6)):
        prompt = draw.choice(lengths) if draw.random() < 0.7 else draw.randint(1, limit - 1)
        if often and draw.random() < 0.4:
            prompt = often
        output = min(draw.choice((1, 2, 3, 5, 8, 13)), limit - prompt)
        if draw.random() < 0.15:  # up to the limit of the context
            output, prompt = min(8, limit - 1), limit - min(8, limit - 1)
        common = None
        if number and draw.random() < 0.5:
            other = draw.randrange(number)
            most = min(prompt, requests[other]["prompt"])
            common = [other, min(most, draw.choice([*lengths, most, most]))]
        arrives = draw.choice((0, 0, 0, 1, 2, 4, 7))
        if number and draw.random() < 0.2:  # the next turn of a conversation: an answer, but for its last token, is cached
            other = draw.randrange(number)
            turn, answered = requests[other], requests[other]["prompt"] + requests[other]["output"] - 1
            if turn["arrives"] + turn["output"] < 12 and answered < limit - 1:
                prompt = min(answered + draw.choice((1, 2, *lengths[:4])), limit - 1)
                output, arrives = min(output, limit - prompt), turn["arrives"] + turn["output"] + draw.choice((1, 2, 3))
                common = [other, answered]
        if crowd:  # all at once, behind the first, whose beginning is cached by then
            prompt, output = crowd + draw.randint(1, 16), draw.choice((8, 13))
            arrives, common = (6, [0, crowd]) if number else (0, None)
        requests.append({"prompt": prompt, "output": output, "arrives": arrives, "common": common})
    more = random.Random(f"{draw.random()}") if settings.get("adapters") or settings.get("images") else None
    if more and settings.get("adapters"):
        _adapters(requests, settings["adapters"], more, bool(crowd))
    if more and settings.get("images") and not crowd:
        _images(requests, lengths, more)
    return {
        "engine": engine, "release": release, "settings": settings, "requests": requests, "steps": draw.choice((8, 12, 16, 20)),
        "seed": draw.randrange(1 << 30),
    }  # fmt: skip


def _adapters(requests: list[Request], count: int, draw: random.Random, crowd: bool) -> None:
    """Who begins as an earlier request does has that one's half the time. crowd: whether all do."""
    for request in requests:
        adapter, common = draw.randint(0, count), request["common"]
        if common and (crowd or draw.random() < 0.5):
            adapter = requests[common[0]].get("adapter", 0)
        if adapter:
            request["adapter"] = adapter


def _images(requests: list[Request], lengths: list[int], draw: random.Random) -> None:
    """Of two; mostly in the place where the earlier request has one whose text this one begins with."""
    for request in requests:
        prompt = request["prompt"]
        earlier = requests[request["common"][0]].get("image") if request["common"] else None
        if earlier and earlier[0] < prompt and draw.random() < 0.8:
            begin, length = earlier[:2]
        elif prompt > 1 and draw.random() < 0.7:
            begin, length = draw.randint(1, prompt - 1), draw.choice(lengths)
        else:
            continue
        request["image"] = [begin, min(length, prompt - begin), draw.choice((1, 1, 2))]


def _values(space: Space, pair: Pair) -> Settings:
    return {name: space.axes[name][index] for name, index in pair}


def _index(values: Any, value: Any) -> int:
    return next(index for index, other in enumerate(values) if _plain(other) == _plain(value))


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))
