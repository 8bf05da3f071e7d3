"""How results are printed: JSON on request, else a table that fits the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

#: Colour of a verdict or state, everywhere the same
COLOURS = {
    "affected": "red",
    "failed": "red",
    "conflict": "red",
    "late": "red",
    "unproven": "yellow",
    "unknown": "yellow",
    "unknown source": "yellow",
    "pending": "yellow",
    "proven": "green",
    "installed": "green",
    "effective": "green",
    "fixed upstream": "cyan",
    "not affected": "dim",
    "dormant": "dim",
    "off": "dim",
}

#: Columns of free text, which may take several lines
WRAPPED = frozenset({"reason", "what goes wrong"})


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def coloured(word: str) -> str:
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/{colour}]" if colour else word


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on standard output; cells are rich markup."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in WRAPPED)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_line(text: str) -> None:
    console().print(text, highlight=False, soft_wrap=True)


def console() -> Any:
    """Standard output; a pipe or a log file gets lines that are wide enough for every table."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)
