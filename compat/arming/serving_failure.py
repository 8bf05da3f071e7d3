"""What happens when a correction fails while the engine serves: one policy for all fixes.

| the correction failed and | then |
|---|---|
| the fix is required (ATTNFIX_STRICT=1, or its switch is 1) | the process ends with one line, as it would at start |
| memory was short, and the engine's own result is right | this call goes without its correction; the fix stays armed |
| memory was short, and the engine's own result would be wrong | the engine gets the error as its own; the fix stays armed |
| anything else | the fix is `failed` for good, and says what that means for answers |

Whether the engine's own result is right is what `Fix.harm` says: it is, where the bug only makes the engine slower.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from ..fix import CRASH, SLOWER, WRONG_OUTPUT
from ..status import messages
from ..status.fix_state import FixState
from . import switches

_SETTLED = "attnfix_settled"
_CAUSES = 8  # how far back it is looked: a chain may be a circle
_COMPAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Where fixes are, and with them what runs them
_FIXES = os.path.join(os.path.dirname(_COMPAT), "patches", "")
_OURS = os.path.join(_COMPAT, ""), _FIXES, os.path.join(os.path.dirname(_COMPAT), "kernels", "")
#: In a proof these stand for kernels of the engine's
_STAND_INS, _PROOF = os.path.join(_FIXES, "proofkit", ""), os.path.join(os.sep, "proof.py")
_WITHOUT_IT = {
    WRONG_OUTPUT: "answers of this process can be wrong from here on: restart it",
    CRASH: "this process can crash from here on, as it does without attnfix: restart it",
    SLOWER: "answers of this process stay right, it is slower",
}


def settle(state: FixState, part: Callable[..., Any] | None, error: Exception) -> None:
    """Carry out the policy for `error`, which `part` of a correction raised. Called inside an `except`.

    Returns where the engine's own result serves. Raises the error again where it is the engine's to handle.
    """
    reason = reason_of(part, error)
    with suppress(AttributeError):  # of a class with `__slots__`
        setattr(error, _SETTLED, True)  # a correction around this one is not to blame
    if switches.required(state.fix):
        messages.end_serving(state, reason)
    if is_allocation_failure(error):
        if state.fix.harm != SLOWER:
            raise
        messages.skipped(state, reason)
        return
    give_up(state, reason)


def reason_of(part: Callable[..., Any] | None, error: Exception) -> str:
    """What is said of a `part` of a correction that raised `error`."""
    return f"{getattr(part, '__name__', part)} raised {type(error).__name__}: {_text(error)}"


def is_ours(error: BaseException) -> bool:
    """Whether `error` came to the engine through a function of a fix that the engine called, wherever it surfaces: raised
    there, or raised again by the engine from one that was. What `Call.guard` and `Call.watch` call for the engine is the
    engine's own."""
    found: BaseException | None = error
    for _ in range(_CAUSES):
        if found is None or hasattr(found, _SETTLED):
            return False
        if _through_a_fix(found.__traceback__):
            return True
        found = found.__cause__ or found.__context__
    return False


def _through_a_fix(traceback: TracebackType | None) -> bool:
    """Whether code that is not of attnfix called code of a fix on the way."""
    theirs = False
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        stand_in = path.startswith(_STAND_INS) or path.endswith(_PROOF)
        if theirs and path.startswith(_FIXES) and not stand_in:
            return True
        theirs = stand_in or not path.startswith(_OURS)
        traceback = traceback.tb_next
    return False


def give_up(state: FixState, reason: str) -> None:
    """Disarm the fix for good while the engine serves; a required one ends the process. Lets no exception out."""
    if switches.required(state.fix):
        messages.end_serving(state, reason)
    with suppress(Exception):  # such as no memory for the traceback
        state.fail(f"{reason}; {_WITHOUT_IT[state.fix.harm]}")


def lost(state: FixState) -> None:
    """The first call has found that somebody else changed what the fix stands on: a required one ends the process."""
    if switches.required(state.fix):
        messages.end_serving(state, state.reason)


def is_allocation_failure(error: Exception) -> bool:
    """Whether memory was asked for and not there, on the host or on a device: it may be there for the next call."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    # torch.OutOfMemoryError is its name from 2.5 on; the CPU's allocator raises a plain RuntimeError
    kind = getattr(torch, "OutOfMemoryError", None) or getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    if isinstance(kind, type) and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and any(word in _text(error).lower() for word in _NO_MEMORY)


#: As torch, Triton, the CUDA driver ("CUDA error: out of memory", CUDA_ERROR_OUT_OF_MEMORY) and cuBLAS say it
_NO_MEMORY = ("defaultcpuallocator", "out of memory", "out_of_memory", "_status_alloc_failed")


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
        return "an error that has no text"
