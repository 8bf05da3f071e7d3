"""Two releases of an engine, what changed between them, and which pairs somebody has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import index
from attnfix.compat.releases import fetch
from attnfix.compat.releases.errors import ReleaseError
from scripts.radar import compare, funnel, parts, scope

READ = Path(__file__).with_name("read.json")


class Pair:
    """Raises ReleaseError, one sentence, where a release cannot be had or has no Python files; when it is first looked at."""

    def __init__(self, engine: str, old: str, new: str):
        self.engine, self.old_release, self.new_release = engine, old, new

    def __str__(self) -> str:
        return f"{self.engine} {self.name}"

    @property
    def name(self) -> str:
        return f"{self.old_release}..{self.new_release}"

    @cached_property
    def old(self) -> parts.Parts:
        return self._parts(self.old_release)

    @cached_property
    def new(self) -> parts.Parts:
        return self._parts(self.new_release)

    @cached_property
    def comparison(self) -> compare.Comparison:
        return compare.compare(self.old, self.new)

    @cached_property
    def candidates(self) -> list[funnel.Candidate]:
        return funnel.candidates(self.comparison, self.new, scope.witnesses(self.engine))

    def site(self, release: str) -> Path:
        """Where the release lies."""
        return Path(fetch.fetch(self.engine, release))

    def _parts(self, release: str) -> parts.Parts:
        site = self.site(release)
        try:
            return parts.of_release(site, self.engine, site.parent.parent / "radar.sqlite")
        except FileNotFoundError as error:
            raise ReleaseError(str(error)) from error


def parsed(old: str, new: str | None = None) -> Pair:
    """The pair of ENGINE==RELEASE and ENGINE==RELEASE; of one alone, with the release before it.

    Raises ReleaseError where they are no pair, or the release before is not known.
    """
    engine, _, release = old.partition("==")
    if engine not in ENGINES or not release:
        raise ReleaseError(f"{old!r} is no release: write ENGINE==RELEASE, as in vllm==0.19.0.")
    if new is None:
        for pair in known(engine):
            if pair.new_release == release:
                return pair
        raise ReleaseError(f"The ledger of {engine} knows no release before {release}: name that one, too.")
    other, _, newer = new.partition("==")
    if other != engine or not newer:
        raise ReleaseError(f"{old} and {new} are no two releases of one engine.")
    return Pair(engine, release, newer)


def known(engine: str) -> list[Pair]:
    """Each release that the ledger knows, with the one before it; oldest first."""
    releases = index.read(scope.ROOT / "patches" / engine / "index.json").releases
    return [Pair(engine, old, new) for old, new in pairwise(releases)]


def unread(read: Mapping[str, list[str]] | None = None) -> list[Pair]:
    """Pairs that nobody has read. read: {engine: [OLD..NEW, …]}, by default the committed table."""
    table = json.loads(READ.read_text()) if read is None else read
    return [pair for engine in ENGINES for pair in known(engine) if pair.name not in table.get(engine, ())]
