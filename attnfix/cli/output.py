"""How results are printed: JSON on request, else a table that fits the terminal. All text that goes out passes here: none of it
is read as markup, and characters that say something to a terminal are escaped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnfix.compat.untrusted import line

from .errors import CliError

#: Colour of a verdict or state, everywhere the same
COLOURS = {
    "affected": "red",
    "failed": "red",
    "conflict": "red",
    "late": "red",
    "unproven": "yellow",
    "not judged": "yellow",
    "unknown": "yellow",
    "unknown source": "yellow",
    "pending": "yellow",
    "proven": "green",
    "installed": "green",
    "effective": "green",
    "fixed upstream": "cyan",
    "observed": "cyan",
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
        "verdict",
        "edit",
        "replica",
        "corrections",
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


_PADDING = (0, 1, 0, 0)
_gone: set[Any] = set()  # streams that nobody reads any more
_NARROW = 8  # columns, down to which a column that may take several lines is squeezed


class Unwritable(CliError):
    """Standard output takes nothing: closed, or on a disk that is full."""


def print_json(data: Any) -> None:
    with written():
        print(json.dumps(data, indent=2))


def coloured(word: str, colour: str | None = None) -> Text:
    """A word in the colour of its meaning. Everything else is printed as it is: no text is read as markup."""
    return Text(word, style=colour or COLOURS.get(word, ""))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table on standard output."""
    console().print(table(title, columns, rows))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table in the style of all."""
    named = Text(line(title), style="table.title") if title else None
    made = _Table(title=named, title_justify="left", box=SIMPLE_HEAD, padding=_PADDING, header_style="bold")
    for column in columns:
        made.add_column(_clean(Text(column)), overflow="fold", no_wrap=column not in WRAPPED)
    for row in rows:  # clean before their widths are taken
        made.add_row(*(_clean(Text(cell) if isinstance(cell, str) else cell) for cell in row))
    return made


def _clean(text: Text) -> Text:
    """Lines stay; other characters that are none to look at are escaped."""
    if text.plain.replace("\n", "").isprintable():
        return text
    return text.blank_copy("\n".join(map(line, text.plain.split("\n"))))


class _Table(Table):
    """Row by row, where the terminal is too narrow for the columns side by side: a word that is cut may be the verdict."""

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        needed = 2 + sum(1 + min(_width(column), _width(column) if column.no_wrap else _NARROW) for column in self.columns)
        if needed <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield self.title
        for row in zip(*(column.cells for column in self.columns)):
            grid = Table.grid(padding=_PADDING)
            grid.add_column(style="bold", overflow="fold", max_width=options.max_width // 3)
            grid.add_column(overflow="fold")
            for column, cell in zip(self.columns, row):
                if cell.plain:
                    grid.add_row(_one_line(column.header), cell)
            yield grid
            yield ""


def _width(column: Any) -> int:
    """Of the longest line in a column, its head included."""
    return max(cell_len(each) for text in (column.header, *column.cells) for each in text.plain.split("\n"))


def _one_line(head: Any) -> Text:
    return Text(" ".join(head.plain.split()))


def few(told: Sequence[str], most: int = 40) -> list[str]:
    """The first of them, and how many there are more: a record or a page of somebody else may hold any number."""
    return [*told[:most], f"and {len(told) - most} more"] if len(told) > most else [*told]


def print_line(*parts: str | Text) -> None:
    """One line, however long it is and whatever its parts hold."""
    plain = (line(part) if isinstance(part, str) else part for part in parts)
    console().print(*plain, markup=False, highlight=False, soft_wrap=True)


def complain(sentence: str) -> None:
    """One sentence on standard error, where that takes any."""
    aside(f"attnfix: {line(sentence)}")


def aside(text: str) -> None:
    """One line on standard error, where that takes any."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: Any) -> None:
    """What `stream` could not write is flushed at exit, and would fail once more: send it nowhere."""
    with suppress(OSError, AttributeError, ValueError):  # there is none, or one that a caller has put there
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def console() -> Terminal:
    """Standard output; a pipe or a log file gets lines that are wide enough for every table, unless COLUMNS says how wide."""
    return Terminal(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)


def reader_gone() -> bool:
    """Whether nobody reads standard output any more."""
    return sys.stdout in _gone


@contextmanager
def written() -> Iterator[None]:
    """Output printed inside has gone out, or it is one sentence why not. If the reader has had enough, as in
    `attnfix list | head`, the rest goes nowhere: the exit code is that of the result."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _gone.add(sys.stdout)
        drop(sys.stdout)
    except OSError as error:
        raise Unwritable(f"standard output cannot be written: {error.strerror or error}") from error


class Terminal(Console):
    """Standard output as every command writes it."""

    def print(self, *objects: Any, **how: Any) -> None:
        """In a pipe or a file, no line ends in blanks, and no blank line ends a table."""
        with written():
            if self.is_terminal:
                super().print(*objects, **how)
                return
            with self.capture() as told:
                super().print(*objects, **how)
            lines = [each.rstrip() for each in told.get().split("\n")]
            self.file.write("\n".join(lines).rstrip("\n") + "\n")

    def render(self, renderable: Any, options: Any = None) -> Any:
        """The one place through which all text comes."""
        return super().render(_clean(renderable) if isinstance(renderable, Text) else renderable, options)

    def on_broken_pipe(self) -> None:
        """rich would end the program with 1."""
        raise BrokenPipeError


def documentation() -> str | None:
    """Address of the documentation, as the installed package names it."""
    with suppress(PackageNotFoundError):
        for text in metadata("attnfix").get_all("Project-URL") or ():
            label, _, address = text.partition(",")
            if label.strip().lower() == "documentation":
                return str(address).strip()
    return None
