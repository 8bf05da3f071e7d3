"""How results are printed: JSON on request, else a table that fits the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from rich.table import Table

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

#: Columns that may take several lines, so that every table fits 80 columns
WRAPPED = frozenset(
    {
        "reason",
        "what goes wrong",
        "affected releases",
        "release",
        "engine",
        "kernel",
        "verdict, kernel",
        "stock → fixed",
        "work",
        "goal",
        "from",
        "to",
        "attnfix",
        "process",
        "host",
    }
)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def coloured(word: str, colour: str | None = None) -> Text:
    """A word in the colour of its meaning. Everything else is printed as it is: no text is read as markup."""
    return Text(word, style=colour or COLOURS.get(word, ""))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table on standard output."""
    console().print(table(title, columns, rows))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table in the style of all."""
    from rich import box
    from rich.table import Table

    made = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column not in WRAPPED)
    for row in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def print_line(*parts: str | Text) -> None:
    console().print(*parts, markup=False, highlight=False, soft_wrap=True)


def console() -> Any:
    """Standard output; a pipe or a log file gets lines that are wide enough for every table, unless COLUMNS says how wide."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
