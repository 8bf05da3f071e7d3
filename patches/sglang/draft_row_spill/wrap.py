"""Correction of sglang.draft-row-spill.

The engine itself says what a decode step may give a request beyond its tokens. From 0.5.16 on it makes the rows that wide where
a page has more than one slot.
"""

from __future__ import annotations

from typing import Any

#: Tokens before the context length at which a request has its last decode step, as in `hits`
_ENDS = 4


def extra_context_len(call: Any, instance: Any, server_args: Any = None) -> int:
    """Slots of a row of `req_to_token` behind the context length. Later releases take no arguments."""
    result = call()
    if server_args is not None and server_args.speculative_algorithm is None:
        return result  # without drafts, a step gives no slot behind the context length
    needed = given_ahead(call.target.function, *([] if server_args is None else [server_args]))
    if needed <= result:
        return result
    if needed - _ENDS > result:
        call.corrected()
    return needed


def given_ahead(function: Any, *server_args: Any) -> int:
    """The most slots that a request has behind its tokens: those of two decode steps, up to the end of a page."""
    ahead = function.__globals__["get_alloc_reserve_per_decode"](*server_args)
    return ahead + max([getattr(args, "page_size", None) or 1 for args in server_args], default=1) - 1
