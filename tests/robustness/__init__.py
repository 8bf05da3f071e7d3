"""What attnfix is tried under before it is trusted: wrong sources, faults, load, foreign patchers. `make robustness` runs it.

A part is a module of this folder with `run(quick, say)`; it returns one `Row` for each line of the table in docs/safety.md.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Row:
    """what: what was tried, a phrase. tried: how often; `wrong` has one sentence for each time it came out wrong.

    figures: measured values with their unit, `{"engine import": "+31 ms"}`. not_run: what could not be tried here, and why.
    """

    what: str
    tried: int
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    not_run: list[str] = field(default_factory=list)


#: What a part is called with: `quick`, for CI, and where progress goes
Run = Callable[[bool, Callable[[str], None]], list[Row]]


def draw_seed() -> int:
    """What a part draws from: ROBUSTNESS_SEED, which repeats a run and which CI sets; another one each time where it is not."""
    return int(os.environ.get("ROBUSTNESS_SEED") or secrets.randbelow(2**31))


def plain_environment() -> dict[str, str]:
    """The caller's, without what changes how Python starts: bytecode is written, as on any machine."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ATTNFIX", "PYTHON"))}
