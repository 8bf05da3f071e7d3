"""Environment switches, read when a target module is imported, so that variables set inside a launch script count."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from ..fix import Known
from ..status.metrics import SERVER

#: Every variable that is not the switch of one fix, with what it does: documentation and spelling check in one.
GENERAL = {
    "ATTNFIX": "0 turns everything off and always wins",
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
_FORMER = {switch: former for former, switch in RENAMED.items()}
_WORDS = {False: ("0", "off", "no", "false"), True: ("1", "on", "yes", "true"), None: ("auto", "")}
_VALUES = {word: meaning for meaning, words in _WORDS.items() for word in words}


def killed(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ATTNFIX=0: nothing is patched, whatever else is set."""
    return _value(environ, "ATTNFIX") is False


def strict(environ: Mapping[str, str] = os.environ) -> bool:
    return _value(environ, "ATTNFIX_STRICT") is True


def asked(fix: Known, environ: Mapping[str, str] = os.environ) -> bool | None:
    """True or False where the operator switched the fix on or off; None for `auto`, an unset or a misspelt value."""
    name = fix.switch if fix.switch in environ else _FORMER.get(fix.switch, fix.switch)
    return _value(environ, name)


def required(fix: Known, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the operator would rather have no process than one without this fix, where its code is affected."""
    return strict(environ) or asked(fix, environ) is True


def left_off(fix: Known, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the fix is off by default and nobody has asked for it."""
    return not fix.default and asked(fix, environ) is None


def _value(environ: Mapping[str, str], name: str) -> bool | None:
    return _VALUES.get(environ.get(name, "").strip().lower())


def complaints(fixes: Iterable[Known], environ: Mapping[str, str] = os.environ) -> list[str]:
    """One sentence for each ATTNFIX variable that is unknown or has a value we do not read.

    `fixes` are asked for one by one, no further than it takes to know the variables that are set.
    """
    ours = (name for name in environ if name == "ATTNFIX" or name.startswith("ATTNFIX_"))
    names = sorted(name for name in ours if name != SERVER)  # which attnfix sets by itself
    known, unknown = dict.fromkeys(GENERAL), set(names) - GENERAL.keys() - RENAMED.keys()
    for fix in fixes if unknown else ():
        known[fix.switch] = None
        unknown.discard(fix.switch)
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
            hint = f"did you mean {near[0]}? " if near else ""
            found.append(f"{name} is no variable of attnfix. {hint}Known: {', '.join(known)}")
        elif name == "ATTNFIX_LOG":
            if value and not isinstance(logging.getLevelName(value.upper()), int):
                found.append(f"ATTNFIX_LOG={value} is no logging level; use debug, info, warning or error")
        elif name not in ("ATTNFIX_RUN_DIR", "ATTNFIX_CACHE_DIR") and value.strip().lower() not in _VALUES:
            found.append(f"{name}={value} is not read; use 0, 1 or auto")
    return found
