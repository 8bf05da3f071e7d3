"""How results are printed: JSON on request, else a table that fits the terminal."""

from __future__ import annotations

import json
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


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def coloured(word: str) -> str:
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/{colour}]" if colour else word


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on standard output; cells are rich markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_line(text: str) -> None:
    from rich.console import Console

    Console().print(text, highlight=False)
