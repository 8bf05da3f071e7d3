"""Whether a deployment would hit the bug of a fix: the fix's condition over the engine's facts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from ..fix import Fix
from ..gate import ledger
from . import sglang, vllm
from .condition import HIT, NOT_HIT, POSSIBLE, Answer, Fact, Facts, unknown
from .deployment import NO_CONFIG, Deployment, Makers

SHARED: dict[str, Makers] = {"sglang": sglang.FACTS, "vllm": vllm.FACTS}


def facts(deployment: Deployment, of_fixes: Makers) -> Facts:
    """fact by name; each is made once. A config.json of an unheard-of form leaves it unknown.

    `of_fixes` makes those that one fix alone asks for (its `facts.py`).
    """
    makers, made = {**SHARED[deployment.engine], **of_fixes}, dict[str, Fact]()

    def get(name: str) -> Fact:
        if name not in made:
            maker = makers[name]
            try:
                made[name] = maker(deployment)
            except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
                made[name] = unknown(f"config.json has a form that is not read, or an option: {error}")
            made[name] = made[name]._replace(why=made[name].why.replace(NO_CONFIG, deployment.no_config))
        return made[name]

    return get


def answer(fix: Fix, verdict: str, reason: str, known: Facts) -> Answer:
    """`verdict` is the ledger's or the gate's on the code, `reason` its word. Code without the bug is not hit; code that nobody
    judged at most possibly."""
    if verdict in (ledger.FIXED, ledger.NOT_AFFECTED):
        return Answer(NOT_HIT, (f"code: {verdict} ({reason})",))
    found = fix.hits(known) if fix.hits else Answer(POSSIBLE, ("no condition is known",))
    if verdict == ledger.UNKNOWN and found.verdict == HIT:
        return Answer(POSSIBLE, (f"code: never judged ({reason})", *found.reasons))
    return found


def options_read(engine: str, of_fixes: Makers) -> frozenset[str]:
    """Every text in the modules that make the engine's facts, cut at a dot: names of all options that a fact may read."""
    modules = {maker.__module__: None for maker in {**SHARED[engine], **of_fixes}.values()}
    values = [value for module in modules for name, value in vars(sys.modules[module]).items() if not name.startswith("__")]
    return frozenset(text.partition(".")[0] for text in _texts(values))


def _texts(value: Any) -> Iterator[str]:
    """Texts in constants and functions, and in what they hold."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in (*value, *value.values()):
            yield from _texts(part)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, FunctionType):
        yield from _texts(value.__code__)
    elif isinstance(value, CodeType):
        yield from _texts(value.co_consts)
