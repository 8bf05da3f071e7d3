"""Reading `ENGINE==RELEASE` from the command line."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from attnfix.compat.engines import ENGINES

from .errors import CliError, no_such


def parse(text: str) -> tuple[str, str]:
    """("sglang", "0.5.9") from "sglang==0.5.9". Raises CliError with exit code 2."""
    engine, release = parse_optional(text)
    if release is None:
        raise CliError(f"name the release too, as in {engine}==1.2.3", 2)
    return engine, release


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
