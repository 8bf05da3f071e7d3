"""Correction of sglang.draft-row-spill.

The engine itself says what a decode step may give a request beyond its tokens, and makes rows of pages of several slots wide
enough up to the end of the last page.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

#: Tokens before the context length at which a request has its last decode step. One nearer come requests of which a step is
#: prepared before the result of the last one is there, in some releases (a claimed slot, a prefill after a retraction)
ENDS, NEARER = 4, 1


def extra_context_len(call: Call, instance: Any, server_args: Any = None) -> int:
    """Slots of a row of `req_to_token` behind the context length. Later releases take no arguments.

    A row that is short for the nearer requests alone gets wider, and is not counted.
    """
    result = call()
    if not two_steps_ahead(call.target.function, server_args):
        return result
    given = given_ahead(call.target.function, *([] if server_args is None else [server_args]))
    if given - ENDS + NEARER <= result:
        return result
    if given - ENDS > result:
        call.corrected()
    return given


def given_ahead(function: Any, *server_args: Any) -> int:
    """The most slots that a request has behind its tokens: those of two decode steps."""
    return function.__globals__["get_alloc_reserve_per_decode"](*server_args)


def two_steps_ahead(function: Any, server_args: Any) -> bool:
    """Whether this server has decode steps that give slots of two steps."""
    if server_args is None:
        context = sys.modules.get("sglang.srt.runtime_context")
        get_disagg = getattr(context, "get_disagg", None)
        disaggregation = get_disagg() if get_disagg else None
        return getattr(disaggregation, "disaggregation_mode", None) != "prefill"
    if server_args.speculative_algorithm is None or server_args.disaggregation_mode == "prefill":
        return False
    kinds = sys.modules.get("sglang.srt.speculative.spec_info")  # there since the arguments were resolved
    algorithm = kinds and kinds.SpeculativeAlgorithm.from_string(server_args.speculative_algorithm)
    supports_spec_v2 = getattr(algorithm, "supports_spec_v2", None)  # of 0.5.13 alone
    return supports_spec_v2 is None or supports_spec_v2()
