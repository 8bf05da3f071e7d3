"""What `attnfix status --metrics` shows: a row for each replica, the fixes behind each fix set, and what is wrong, loud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.text import Text

from attnfix.compat.untrusted import line

from . import fleet
from .output import coloured, few, table
from .status_view import short

_COLOURS = {fleet.FINE: "green", fleet.BEHIND: "yellow", fleet.OBSERVES: "yellow"}


def view(found: dict[str, Any], width: int) -> Group:
    """All of `found` (what `fleet.collect` returns)."""
    del width  # the table fits itself
    replicas = found["replicas"]
    names = _names(replicas)
    parts: list[RenderableType] = [
        table(
            f"{len(replicas)} {'replicas, by their metrics pages' if replicas[1:] else 'replica, by its metrics page'}",
            ("replica", "verdict", "engine", "attnfix", "processes", "fixset", "corrections"),
            [_row(name, replica) for name, replica in zip(names, replicas)],
        )
    ]
    parts += _sets(replicas)
    parts += [Text(line(sentence), "bold red") for told in ("missing", "warnings") for sentence in few(found[told])]
    if found["missing"]:
        parts.append(Text("Next: `attnfix status` on such a replica says in which process, and why."))
    return Group(*parts)


def _names(replicas: list[dict[str, Any]]) -> list[str]:
    """Host and port where they tell the replicas apart, else the whole address."""
    urls = [replica["url"] for replica in replicas]
    brief = [urlsplit(url).netloc for url in urls]
    return brief if len({*brief}) == len(brief) else urls


def _row(name: str, replica: dict[str, Any]) -> tuple[str | Text, ...]:
    verdict = replica["verdict"]
    corrected = {row["fix"]: row["counters"]["corrections"] for row in replica["fixes"] if row["counters"]["corrections"]}
    return (
        name,
        coloured(verdict, _COLOURS.get(verdict, "red")),
        "\n".join(few(replica["engines"], 5)) or "-",
        replica["attnfix"] or "-",
        str(replica["processes"] or "-"),
        (replica["fixset"] or "-")[:8],
        "\n".join(few([f"{fix.partition('.')[2]} {short(count)}" for fix, count in corrected.items()])) or "-",
    )


def _sets(replicas: list[dict[str, Any]]) -> Iterator[Text]:
    """The fixes that stand under each name of a set, so that two names can be told apart."""
    sets = {replica["fixset"]: replica for replica in replicas if replica["fixset"]}
    for name, replica in sets.items():
        standing = [row["fix"] for row in replica["fixes"] if row["stands"]]
        yield Text(line(f"{name[:8]}: {', '.join(few(standing, 200)) or 'none stands'}"))
