"""Environment switches, read when a target module is imported, so that variables set inside a launch script count."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..fix import Judgeable
from ..status.fix_state import REFUSALS
from ..status.metrics import SERVER

#: Every variable that is not the switch of one fix, with what it does: documentation and spelling check in one.
GENERAL = {
    "ATTNFIX": "0 turns everything off and always wins; observe corrects nothing, and counts what it would correct",
    "ATTNFIX_ONLY": "ids of fixes, with commas: nothing else is on; set but blank, nothing is",
    "ATTNFIX_FIXSET": "name of the set of fixes that are on, from `attnfix status`: with any other set, nothing is armed",
    "ATTNFIX_STRICT": "1: end the process when an affected fix that is on cannot be armed",
    "ATTNFIX_LOG": "a logging level; its lines then go to standard error whatever the engine configures",
    "ATTNFIX_RUN_DIR": "folder of the process records",
    "ATTNFIX_CACHE_DIR": "folder of fetched engine releases",
}
#: Former name of a switch -> its name. A former name is read, and told, until 1.1.0
RENAMED = {
    "ATTNFIX_SGLANG_FA3_CONTEXT_WALL": "ATTNFIX_SGLANG_FA3_CONTEXT_LIMIT",
    "ATTNFIX_SGLANG_DRAFT_KV_WALL": "ATTNFIX_SGLANG_DRAFT_KV_CONTEXT_LIMIT",
}
UNKNOWN_ID, OTHER_SET, STRICT_OBSERVES = REFUSALS
_OBSERVE = "observe"
_SHOWN = 80  # letters of a value that is none of ours
_FORMER = {switch: former for former, switch in RENAMED.items()}
_OF_OTHER_VALUES = ("ATTNFIX_ONLY", "ATTNFIX_FIXSET", "ATTNFIX_RUN_DIR", "ATTNFIX_CACHE_DIR")
_WORDS = {False: ("0", "off", "no", "false"), True: ("1", "on", "yes", "true"), None: ("auto", "")}
_VALUES = {word: meaning for meaning, words in _WORDS.items() for word in words}


def killed(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ATTNFIX=0: nothing is patched, whatever else is set."""
    return _value(environ, "ATTNFIX") is False


def observing(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ATTNFIX=observe: calls are looked at and counted, and none is corrected."""
    return environ.get("ATTNFIX", "").strip().lower() == _OBSERVE


def strict(environ: Mapping[str, str] = os.environ) -> bool:
    return _value(environ, "ATTNFIX_STRICT") is True


def asked(fix: Judgeable, environ: Mapping[str, str] = os.environ) -> bool | None:
    """True or False where the operator switched the fix on or off; None for `auto`, an unset or a misspelt value."""
    name = fix.switch if fix.switch in environ else _FORMER.get(fix.switch, fix.switch)
    return _value(environ, name)


def only(environ: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The ids that ATTNFIX_ONLY names; none where it is blank, None where it is not set."""
    named = environ.get("ATTNFIX_ONLY")
    return None if named is None else tuple(dict.fromkeys(filter(None, map(str.strip, named.split(",")))))


def required(fix: Judgeable, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the operator would rather have no process than one without this fix, where its code is affected."""
    return strict(environ) or (asked(fix, environ) is True and not left_off(fix, environ) and not observing(environ))


def restriction(environ: Mapping[str, str] = os.environ) -> tuple[tuple[str, str], ...]:
    """Every variable that decides what `refused` says of the same fixes; none where it cannot refuse."""
    if "ATTNFIX_ONLY" not in environ and "ATTNFIX_FIXSET" not in environ and not observing(environ):
        return ()
    return tuple((name, value) for name, value in environ.items() if name.startswith("ATTNFIX"))


def left_off(fix: Judgeable, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why the fix is off although its switch is not 0; None where it is on."""
    named = only(environ)
    if named is not None:
        return None if fix.id in named else "not in ATTNFIX_ONLY"
    return None if fix.default or asked(fix, environ) else f"off by default; {fix.switch}=1 turns it on"


def fixset_on(fixes: Iterable[Judgeable], environ: Mapping[str, str] = os.environ) -> str:
    """Name of the set of those of all `fixes` that are on, and of the attnfix that brings them: what ATTNFIX_FIXSET takes.

    A switch of 0 does not change it: one variable must always do to switch a fix off.
    """
    from ..status.recorder import fixset_name, own_version

    return fixset_name(own_version(), {fix.id for fix in fixes if not left_off(fix, environ)})


class Refusal(NamedTuple):
    """Why nothing at all is armed. `reason`: one of REFUSALS."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}, so nothing is armed: {self.detail}"


def refused(fixes: Iterable[Judgeable], environ: Mapping[str, str] = os.environ) -> Refusal | None:
    """Whether ATTNFIX_ONLY names an id that no fix has, or ATTNFIX_FIXSET another set than that of all `fixes` that are on; or
    fixes are required of a process that observes.

    `fixes` are asked for one by one, no further than it takes.
    """
    if observing(environ) and strict(environ):
        return Refusal(STRICT_OBSERVES, "it corrects nothing; set one of the two")
    unknown, pinned = set(only(environ) or ()), environ.get("ATTNFIX_FIXSET")
    known: dict[str, Judgeable] = {}
    for fix in fixes if unknown or pinned is not None else ():
        known[fix.id] = fix
        unknown.discard(fix.id)
        if not unknown and pinned is None:
            break
    if unknown:
        return Refusal(UNKNOWN_ID, _unknown_id(min(unknown), known))
    if pinned is not None and pinned.strip().lower() != (here := fixset_on(known.values(), environ)):
        return Refusal(OTHER_SET, f"it is {pinned.strip()[:_SHOWN] or 'blank'}, and the set here is {here}")
    return None


def _unknown_id(name: str, known: Mapping[str, Judgeable]) -> str:
    from difflib import get_close_matches

    former = RENAMED.get("ATTNFIX_" + name.replace(".", "_").replace("-", "_").upper())
    if renamed := [fix.id for fix in known.values() if fix.switch == former]:
        return f"{name} is now called {renamed[0]}"
    near = get_close_matches(name, known, n=1)
    return f"{name[:_SHOWN]} is unknown; " + (f"did you mean {near[0]}?" if near else "`attnfix list` shows the ids")


def _value(environ: Mapping[str, str], name: str) -> bool | None:
    return _VALUES.get(environ.get(name, "").strip().lower())


def complaints(fixes: Iterable[Judgeable], environ: Mapping[str, str] = os.environ) -> list[str]:
    """One sentence for each ATTNFIX variable that is unknown or has a value we do not read.

    `fixes` are asked for one by one, no further than it takes to know the variables that are set.
    """
    ours = (name for name in environ if name == "ATTNFIX" or name.startswith("ATTNFIX_"))
    names = sorted(name for name in ours if name != SERVER)  # which attnfix sets by itself
    known: dict[str, Judgeable | None] = dict.fromkeys(GENERAL)
    unknown = {RENAMED.get(name, name) for name in names} - GENERAL.keys()
    for each in fixes if unknown else ():
        known[each.switch] = each
        unknown.discard(each.switch)
        if not unknown:
            break
    found = []
    for name in names:
        value = environ[name]
        if name in RENAMED:
            which = "which is set as well and counts" if RENAMED[name] in environ else "and read until attnfix 1.1.0"
            found.append(f"{name} is now called {RENAMED[name]}, {which}")
        if name not in known and name not in RENAMED:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`attnfix explain FIX` names the switch of a fix"
            found.append(f"{name} is unknown and ignored; {hint}")
        elif name == "ATTNFIX_LOG":
            if value and not isinstance(logging.getLevelName(value.upper()), int):
                found.append(f"ATTNFIX_LOG={value} is no logging level; use debug, info, warning or error")
        elif name == "ATTNFIX" and observing(environ):
            pass
        elif name not in _OF_OTHER_VALUES and value.strip().lower() not in _VALUES:
            found.append(f"{name}={value} is not read; use {'0, 1, auto or observe' if name == 'ATTNFIX' else '0, 1 or auto'}")
        elif (fix := known.get(RENAMED.get(name, name))) and asked(fix, environ) and (why := left_off(fix, environ)):
            found.append(f"{name}={value} does not turn {fix.id} on, which is {why}")
    return found
