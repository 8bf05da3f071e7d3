"""Completion of words in a shell, by argcomplete (`pip install "attnfix[completion]"`): the shell runs `attnfix` and asks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any, cast

#: Words that may stand in a place
Words = Callable[[], Iterable[str]]


def asked() -> bool:
    """Whether a shell has started this process for completions alone."""
    return "_ARGCOMPLETE" in os.environ


def answer(parser: argparse.ArgumentParser) -> int:
    """Tell the shell the words that fit, and end the process. Without argcomplete there are none."""
    try:
        import argcomplete
    except ImportError:
        return 1
    argcomplete.autocomplete(parser)
    return 1


def offer(argument: argparse.Action, words: Words) -> None:
    """Complete `argument` with `words`, which are found when a shell asks."""
    cast(Any, argument).completer = lambda **_: list(words())
