"""Correction of sglang.draft-row-spill.

The engine itself says what a decode step may give a request beyond its tokens.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

#: The step of EAGLE up to 0.5.14, which claims a slot that the result of the step gives back
_CLAIMS = "sglang.srt.speculative.eagle_info_v2"


def extra_context_len(call: Any, instance: Any, server_args: Any = None) -> int:
    """Slots of a row of `req_to_token` behind the context length. Later releases take no arguments."""
    result = call()
    if server_args is not None and server_args.speculative_algorithm is None:
        return result  # without drafts, a step gives no slot behind the context length
    given = given_ahead(call.target.function, *([] if server_args is None else [server_args]))
    if given - ends(server_args) <= result:
        return result
    call.corrected()
    return given


def given_ahead(function: Any, *server_args: Any) -> int:
    """The most slots that a request has behind its tokens: those of two decode steps. A row of pages of several slots is wide
    enough up to the end of the last page as the engine makes it."""
    return function.__globals__["get_alloc_reserve_per_decode"](*server_args)


def ends(server_args: Any) -> int:
    """Tokens before the context length, a claimed slot included, at which a request has its last decode step. With overlap a
    step is prepared before the result of the last one is there."""
    claims = server_args is not None and not server_args.disable_overlap_schedule and find_spec(_CLAIMS)
    return 3 if claims else 4
