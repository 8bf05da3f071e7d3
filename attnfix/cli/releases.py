"""Reading `ENGINE==RELEASE` from the command line, and finding the release in the ledgers."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from packaging.version import InvalidVersion, Version

from attnfix.compat.engines import ENGINES, installed_root, version_beside
from attnfix.compat.gate import ledger
from attnfix.compat.gate.ledger import Ledger
from attnfix.patches.catalogue import FIXES

from .errors import CliError, no_such


def parse(text: str) -> tuple[str, str]:
    """("sglang", "0.5.9") from "sglang==0.5.9". Raises CliError with exit code 2."""
    engine, release = parse_optional(text)
    if release is None:
        raise CliError(f"name the release too, as in {newest(engine)}", 2)
    return engine, release


def parse_or_installed(text: str) -> tuple[str, str]:
    """The same of a text that may name the engine alone: then the release is the one that is installed here."""
    engine, release = parse_optional(text)
    root = None if release else installed_root(ENGINES[engine])
    found = version_beside(root) if root else release
    if not found:
        raise CliError(f"no {engine} is installed here; name a release, as in {newest(engine)}", 2)
    return parse(f"{engine}=={found}")


def here(option: str = "") -> str:
    """The one engine that is installed here. Raises CliError with exit code 2 where there is none, or more: a release is then
    named behind `option`."""
    found = [name for name, engine in ENGINES.items() if installed_root(engine)]
    if len(found) != 1:
        told = f"{' and '.join(found)} are" if found else "no engine is"
        raise CliError(f"{told} installed here; name one, as in {option}{newest((found or [*ENGINES])[0])}", 2)
    engine: str = found[0]
    return engine


def newest(engine: str) -> str:
    """The newest release of an engine that was judged, as `ENGINE==RELEASE`."""
    return f"{engine}=={of(engine)[-1]}"


def parse_optional(text: str) -> tuple[str, str | None]:
    """The same of a text that may name the engine alone: then the release is None."""
    engine, _, release = (part.strip() for part in text.partition("=="))
    if engine not in ENGINES:
        raise no_such("engine", engine or text, ENGINES)
    if not release:
        return engine, None
    try:
        return engine, str(Version(release))
    except InvalidVersion:
        raise CliError(f"{release!r} is not a version number", 2) from None


def every() -> list[str]:
    """Every release of every engine that was judged, as `ENGINE==RELEASE`."""
    return [f"{engine}=={release}" for engine in ENGINES for release in of(engine)]


@cache
def of(engine: str) -> tuple[str, ...]:
    """Every release of an engine that was judged, in release order."""
    return tuple(known([ledger.load(fix) for fix in FIXES if fix.engine == engine]))


def known(books: Collection[Ledger]) -> list[str]:
    """Every release that one of the ledgers judged, in release order."""
    return sorted({release for book in books for release, _ in book.releases()}, key=Version)


def judged(engine: str, release: str, books: Collection[Ledger]) -> str:
    """The release as the ledgers write it. Raises CliError for one that none of them knows."""
    names, wanted = known(books), Version(Version(release).public)
    older = [name for name in names if Version(name) <= wanted]
    if older and Version(older[-1]) == wanted:
        return older[-1]
    nearest = older[-1] if older else names[0]
    raise CliError(f"{engine} {release} was never judged; nearest that was: {nearest}, newest: {names[-1]}")
