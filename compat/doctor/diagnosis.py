"""Whether a deployment would hit a bug: the condition of its fix, or of a known bug, over the engine's facts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from packaging.version import Version

from ..fix import Fix
from ..gate import ledger
from ..known_bug import KnownBug
from . import sglang, vllm
from .condition import HIT, NOT_HIT, OFF, POSSIBLE, Answer, Fact, Facts, known, unknown
from .deployment import GENERAL, NO_CONFIG, Deployment, Makers

SHARED: dict[str, Makers] = {"sglang": {**GENERAL, **sglang.FACTS}, "vllm": {**GENERAL, **vllm.FACTS}}


def facts(deployment: Deployment, of_fixes: Makers) -> Facts:
    """fact by name; each is made once. A config.json of an unheard-of form leaves it unknown.

    `of_fixes` makes those that one fix alone asks for (its `facts.py`). A name that is an option, as `--page-size`, or a
    variable, as `$SGLANG_X`, is its value; off where it is not given.
    """
    makers, made = {**SHARED[deployment.engine], **of_fixes}, dict[str, Fact]()

    def get(name: str) -> Fact:
        if name not in made:
            try:
                made[name] = _written(deployment, name) if name[:1] in "-$" else makers[name](deployment)
            except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
                made[name] = unknown(f"config.json has a form that is not read, or an option: {error}")
            made[name] = made[name]._replace(why=made[name].why.replace(NO_CONFIG, deployment.no_config))
        return made[name]

    return get


def _written(it: Deployment, name: str) -> Fact:
    """The value of an option or a variable; off where it is not given."""
    if name.startswith("--"):
        return it.option(name[2:], OFF)
    value = it.variables().get(name[1:])
    return known(value or OFF, name if value else f"no {name}")


def of_known(bug: KnownBug, release: Version | None, known: Facts) -> Answer:
    """By the number of the release alone. Where it is unknown, or newer than those that were read, at most possibly."""
    has = bug.in_release(release)
    if has is False:
        return Answer(NOT_HIT, (f"release: {release} does not have it",))
    found = bug.hits(known)
    if has is None and found.verdict == HIT:
        why = f"{release} was not read" if release else "unknown"
        return Answer(POSSIBLE, (f"release: {why}", *found.reasons))
    return found


def answer(fix: Fix, verdict: str, reason: str, known: Facts) -> Answer:
    """`verdict` is the ledger's or the gate's on the code, `reason` its word. Code without the bug is not hit; code that nobody
    judged at most possibly."""
    if verdict in (ledger.FIXED, ledger.NOT_AFFECTED):
        return Answer(NOT_HIT, (f"code: {verdict} ({reason})",))
    found = fix.hits(known) if fix.hits else Answer(POSSIBLE, ("no condition is known",))
    if verdict == ledger.UNKNOWN and found.verdict == HIT:
        return Answer(POSSIBLE, (f"code: never judged ({reason})", *found.reasons))
    return found


def options_read(engine: str, of_fixes: Makers, bugs: Sequence[KnownBug]) -> frozenset[str]:
    """Every text in the modules that make the engine's facts, cut at a dot: names of all options that a fact may read. And the
    options that conditions of known bugs name."""
    modules = {maker.__module__: None for maker in {**SHARED[engine], **of_fixes}.values()}
    values = [value for module in modules for name, value in vars(sys.modules[module]).items() if not name.startswith("__")]
    named = (name[2:] for bug in bugs for name in bug.hits.names if name.startswith("--"))
    return frozenset(text.partition(".")[0] for text in (*_texts(values), *named))


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
