"""How the server of this process was launched."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

#: Who says it: from 0.5.15 on, and from 0.5.3.post2 on
_ASKED = ("sglang.srt.runtime_context", "get_server_args"), ("sglang.srt.server_args", "get_global_server_args")

#: Arguments of a server that let others read its keys and values, or names of them -> who does
READERS = {
    "enable_lmcache": "LMCache",
    "enable_flexkv": "FlexKV",
    "radix_cache_backend": "the radix cache of --radix-cache-backend",
    "enable_unified_cache_external_linker": "an external cache",
}


def reader(args: Any, more: Mapping[str, str]) -> str | None:
    """Who reads keys of a server that was launched with these arguments; `more`: arguments that count beside the usual ones."""
    return next((who for name, who in {**more, **READERS}.items() if getattr(args, name, None)), None)


def server_args() -> Any | None:
    """`ServerArgs`; None where nobody says.

    Up to 0.5.3.post1 no module holds them. There, the runner whose model is being loaded does: it is among the callers.
    """
    for module, name in _ASKED:
        if ask := getattr(sys.modules.get(module), name, None):
            with suppress(Exception):  # none are published yet; which exception says so changed
                return ask()
    frame = sys._getframe(1)
    while frame is not None:
        if args := getattr(frame.f_locals.get("self"), "server_args", None):
            return args
        frame = frame.f_back  # type: ignore[assignment]
    return None
