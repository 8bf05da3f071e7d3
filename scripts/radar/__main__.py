"""The changes between two releases in the code that decides attention, the likeliest mends of bugs first.

    python -m scripts.radar vllm==0.18.1 vllm==0.19.0
        the candidates: tokens changed, lines before and after, and reasons; new functions that changed ones call; removed ones
    python -m scripts.radar vllm==0.18.1 vllm==0.19.0 --show 3
    python -m scripts.radar vllm==0.18.1 vllm==0.19.0 --show 1-40
        the unified diff of the third, of the first forty
    python -m scripts.radar vllm==0.19.0
        the same against the release before it
    python -m scripts.radar --newest
        the candidates of each engine's newest release, unless scripts/radar/read.json has the pair
    python -m scripts.radar --unread
        the pairs that are not in that table: nobody has read them

The exit code is 1, with one sentence, where a release cannot be had, and 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from attnfix.compat import untrusted
from attnfix.compat.engines import ENGINES
from attnfix.compat.releases.errors import ReleaseError
from scripts.radar import pair as pairs
from scripts.radar.funnel import Candidate
from scripts.radar.pair import Pair
from scripts.radar.parts import Part

LIMIT = 40


def _at(part: Part) -> str:
    return f"{untrusted.line(part.path)}:{part.first}"


def counts(pair: Pair) -> dict[str, int]:
    found = pair.comparison
    return {
        "changed": len(found.changes),
        "candidates": len(pair.candidates),
        "added": len(found.added),
        "added_called": len(found.called),
        "removed": len(found.removed),
    }


def as_json(pair: Pair, limit: int) -> dict[str, Any]:
    """{engine, old, new, counts, candidates, added, removed}: of the lists the first `limit`."""
    return {
        "engine": pair.engine,
        "old": pair.old_release,
        "new": pair.new_release,
        "counts": counts(pair),
        "candidates": [
            {
                "name": candidate.change.new.name,
                "old": _at(candidate.change.old),
                "new": _at(candidate.change.new),
                "tokens": candidate.change.size,
                "reasons": candidate.reasons,
                "alike": [f"{_at(part)} {part.name}" for part in candidate.alike],
            }
            for candidate in pair.candidates[:limit]
        ],
        "added": [f"{_at(part)} {part.name}" for part in pair.comparison.called[:limit]],
        "removed": [f"{_at(part)} {part.name}" for part in pair.comparison.removed[:limit]],
    }


def text(pair: Pair, limit: int) -> Iterator[str]:
    """Lines of the table."""
    count = counts(pair)
    yield (
        f"{pair}: {count['changed']} functions and bindings changed, {count['candidates']} candidates; "
        f"{count['added']} added, {count['removed']} removed"
    )
    for number, candidate in enumerate(pair.candidates[:limit], 1):
        change = candidate.change
        yield f"{number:3}  {change.size:4} tokens  {change.new.name}  ({', '.join(candidate.reasons) or 'small'})"
        yield f"     {_at(change.old)} → {_at(change.new)}"
        if candidate.alike:
            yield f"     the same in {', '.join(sorted({part.name for part in candidate.alike}))}"
    for title, listed in ("new, named by changed code", pair.comparison.called), ("removed", pair.comparison.removed):
        if listed and limit:
            yield f"{title}: {min(limit, len(listed))} of {len(listed)}"
            yield from (f"     {_at(part)}  {part.name}" for part in listed[:limit])


def diff(pair: Pair, candidate: Candidate) -> str:
    """Unified diff of the source as it lies in the two releases."""
    change = candidate.change
    before, after = (
        (pair.site(release) / part.path).read_text(errors="replace").split("\n")[part.first - 1 : part.last]
        for part, release in ((change.old, pair.old_release), (change.new, pair.new_release))
    )
    names = f"{_at(change.old)} ({pair.old_release})", f"{_at(change.new)} ({pair.new_release})"
    return "\n".join(map(untrusted.line, difflib.unified_diff(before, after, *names, lineterm="")))


def numbers(text: str) -> tuple[int, int]:
    """First and last of N or N-M. Raises ValueError where it is neither."""
    first, _, last = text.partition("-")
    found = int(first), int(last or first)
    if not 1 <= found[0] <= found[1]:
        raise ValueError(text)
    return found


def show(pair: Pair, options: argparse.Namespace) -> None:
    for release in pair.old_release, pair.new_release:
        pair.site(release)
    with Console(stderr=True).status(f"{pair}: reading both releases"):
        pair.candidates  # noqa: B018
    if options.show is not None:
        first, last = options.show
        if first > len(pair.candidates):
            raise ReleaseError(f"{pair} has candidates 1 to {len(pair.candidates)}, not {first}.")
        for number, candidate in enumerate(pair.candidates[first - 1 : last], first):
            print(f"{number}  {candidate.change.new.name}\n{diff(pair, candidate)}")
    elif options.json:
        print(json.dumps(as_json(pair, options.limit), indent=1))
    else:
        print("\n".join(text(pair, options.limit)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.radar", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", metavar="ENGINE==RELEASE", help="two of one engine, or one")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"how many candidates are listed (default: {LIMIT})")
    parser.add_argument("--show", type=numbers, metavar="N[-M]", help="the diff of this candidate, or of these")
    parser.add_argument("--json", action="store_true", help="JSON in place of text")
    parser.add_argument("--newest", action="store_true", help="each engine's newest release, unless it was read")
    parser.add_argument("--unread", action="store_true", help="the pairs of releases that nobody has read")
    options = parser.parse_args(arguments)
    if bool(options.releases) + options.newest + options.unread != 1 or len(options.releases) > 2 or options.limit < 0:
        parser.error("name one or two releases, or --newest, or --unread")
    try:
        if options.unread:
            for pair in pairs.unread():
                print(f"{pair}: not read")
        elif options.newest:
            newest = {str(pairs.known(engine)[-1]) for engine in ENGINES}
            for pair in pairs.unread():
                if str(pair) in newest:
                    show(pair, options)
        else:
            show(pairs.parsed(*options.releases), options)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
