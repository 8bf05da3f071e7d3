"""Facts of a recorded GPU run that pages and the GPU scripts share."""

from __future__ import annotations

import itertools
import re
from typing import Any


def short_gpu(name: str) -> str:
    """H200, of "NVIDIA H200"; of a name without such a word, the name as a file's may be."""
    short = re.search(r"\b[A-Z]+\d+\w*", name)
    return short.group() if short else re.sub(r"\W+", "-", name)


def each_round(seen: dict[str, Any], fix: str) -> dict[str, list[int]]:
    """{patched server: how often the fix corrected in each round}."""
    so_far = {name: [one.get(fix, 0) for one in told] for name, told in seen["corrections"].items()}
    return {name: [after - before for before, after in itertools.pairwise(told)] for name, told in so_far.items()}
