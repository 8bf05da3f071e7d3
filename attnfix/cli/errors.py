"""What a user sees instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CliError(Exception):
    """One sentence for the user; `code` is the exit code: 1 it did not work, 2 the arguments are wrong."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def no_such(kind: str, word: str, known: Iterable[str], all_by: str = "") -> CliError:
    """The error for a word that is none of `known`: names the nearest one. Where none is near, all, or `all_by`, which says
    what lists them."""
    names = list(known)
    plain = word.strip().lower().replace("_", "-")
    inside = [name for name in names if len(plain) > 2 and plain in name]
    near = get_close_matches(plain, names, n=1) or inside
    between = "; " if any("," in name for name in names) else ", "
    hint = f"did you mean {near[0]}?" if near else all_by or f"known: {between.join(names)}"
    return CliError(f"{word!r} is no {kind}; {hint}", 2)
