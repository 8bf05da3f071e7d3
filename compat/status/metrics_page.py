"""Reading the samples of attnfix (`metrics.METRICS`) out of a metrics page in Prometheus's text format. A page comes from
elsewhere: nothing on it is believed to be well formed, and no text of it is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .. import untrusted
from .metrics import METRICS

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_SAMPLE = re.compile(rf'(attnfix_\w+)\{{((?:[^"}}]|{_TEXT})*)\}}[ \t]+(\S+)')
_LABEL = re.compile(rf"\b(\w+)={_TEXT}")
_LINE = 4096  # letters: what is longer is none of ours
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def samples(page: str) -> Iterator[Sample]:
    """Those that have all the labels that they should have; labels are printable lines."""
    for line in page.split("\n"):
        found = _SAMPLE.match(line) if len(line) <= _LINE else None
        if found and found[1] in METRICS:
            labels = {name: untrusted.line(_unescaped(text)) for name, text in _LABEL.findall(found[2])}
            try:
                value = float(found[4])
            except ValueError:
                continue
            if METRICS[found[1]] <= labels.keys():
                yield Sample(found[1], labels, value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPED.get(found[0], found[0]), text)
