"""What happens when a correction fails while the engine serves: one policy for all fixes.

| the correction failed and | then |
|---|---|
| the fix is required (ATTNFIX_STRICT=1, or its switch is 1) | the process ends with one line, as it would at start |
| memory or the stack was short, and the engine's own result is right | this call goes uncorrected; the fix stays armed |
| memory or the stack was short, and the engine's own result would be wrong | the engine gets the error; the fix stays armed |
| the fix is `ranks_alike`, and there are several ranks | it is `failed`, says on which rank, and the engine gets the error |
| anything else | the fix is `failed` for good, and says what that means for answers |

Where a correction plans, captures or compiles, want of memory is like anything else: the next plan would ask for as much.
Where a target runs once before the engine serves (AT_START), no request waits, and it is the same.

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
_SHARED = os.path.join(os.sep, "shared")
#: Targets that engines call once before they serve: no request waits, so want of memory means stock there, as for a plan.
#: What they call for each layer is none of these: layers that were corrected before would stay so, and the others would not
AT_START = frozenset({"__init__", "init_cuda_graph_state"})
#: Constructors that a server calls for each request
FOR_REQUESTS = frozenset({"Req.__init__"})
#: In a proof these stand for kernels of the engine's
_STAND_INS, _PROOF = os.path.join(_FIXES, "lab", ""), os.path.join(os.sep, "proof.py")
_WITHOUT_IT = {
    WRONG_OUTPUT: "answers of this process can be wrong from here on: restart it",
    CRASH: "this process can crash from here on, as it does without attnfix: restart it",
    SLOWER: "answers of this process stay right, it is slower",
}


def runs_at_start(function: Callable[..., Any]) -> bool:
    return function.__name__ in AT_START and function.__qualname__ not in FOR_REQUESTS


def settle(state: FixState, part: Callable[..., Any] | None, error: Exception, plans: bool = False) -> None:
    """Carry out the policy for `error`, which `part` of a correction raised. `plans`: it plans, captures or compiles.

    Returns where the engine's own result serves. Raises the error again where it is the engine's to handle.
    """
    with suppress(AttributeError):  # of a class with `__slots__`
        setattr(error, _SETTLED, True)  # a correction around this one is not to blame
    reason, serves = reason_of(part, error), spares(state, error, plans)
    if switches.required(state.fix):
        messages.end_serving(state, reason)
    if plans or not is_shortage(error):
        give_up(state, reason, error)
    elif serves:
        messages.skipped(state, reason)
    if not serves:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and all behind it: a circle would keep the tensors of the call


def spares(state: FixState, error: Exception, plans: bool = False) -> bool:
    """Whether the engine's own result serves in the place of a correction that raised `error`."""
    if state.fix.whole().ranks_alike and _rank():
        return False
    return plans or state.fix.whole().harm == SLOWER or not is_shortage(error)


def reason_of(part: Callable[..., Any] | None, error: Exception) -> str:
    """What is said of a `part` of a correction that raised `error`."""
    return f"{getattr(part, '__name__', part)} raised {type(error).__name__}: {_text(error)}"


def is_ours(error: BaseException, part: Callable[..., Any]) -> bool:
    """Whether `error` came to the engine through a function of the fix of `part` that the engine called, wherever it surfaces:
    raised there, or raised again by the engine from one that was. What `Call.guard` and `Call.watch` call for the engine is
    the engine's own."""
    found: BaseException | None = error
    for _ in range(_CAUSES):
        if found is None or hasattr(found, _SETTLED):
            return False
        if _through_a_fix(found.__traceback__, os.path.dirname(part.__code__.co_filename)):
            return True
        found = found.__cause__ or found.__context__
    return False


def _through_a_fix(traceback: TracebackType | None, own: str) -> bool:
    """Whether code that is not of attnfix called code of the fix in the folder `own`, or code that fixes share."""
    theirs = False
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        stand_in = path.startswith(_STAND_INS) or path.endswith(_PROOF)
        if theirs and path.startswith(_FIXES) and not stand_in:
            folder = os.path.dirname(path)
            if folder == own or folder.endswith(_SHARED):
                return True
        theirs = stand_in or not path.startswith(_OURS)
        traceback = traceback.tb_next
    return False


def give_up(state: FixState, reason: str, error: Exception | None = None) -> None:
    """Disarm the fix for good while the engine serves; a required one ends the process. Lets no exception out."""
    if switches.required(state.fix):
        messages.end_serving(state, reason)
    rank = _rank() if error and state.fix.whole().ranks_alike else None
    then = (
        f"on {rank}: the others would wait for it, so the engine gets the error"
        if rank
        else _WITHOUT_IT[state.fix.whole().harm]
    )
    with suppress(Exception):  # such as no memory for the traceback
        state.fail(f"{reason}; {then}", error)


def lost(state: FixState) -> None:
    """The first call has found that somebody else changed what the fix stands on: a required one ends the process."""
    if switches.required(state.fix):
        messages.end_serving(state, state.reason)


def is_shortage(error: Exception) -> bool:
    """Whether a correction lacked what the next call may have: memory, or room on a stack that its caller had filled."""
    return _stack_is_deep() if isinstance(error, RecursionError) else is_allocation_failure(error)


def _stack_is_deep() -> bool:
    """Whether the calls that led here take half of what Python allows: else the correction itself has no end."""
    frame, frames = sys._getframe(), 0
    while frame := frame.f_back:  # type: ignore[assignment]
        frames += 1
    return 2 * frames > sys.getrecursionlimit()


def _rank() -> str | None:
    """Which rank of several this process is; None where it is alone, or cannot tell."""
    with suppress(Exception):
        distributed: Any = sys.modules["torch.distributed"]
        if distributed.is_initialized() and (size := distributed.get_world_size()) > 1:
            return f"rank {distributed.get_rank()} of {size}"
    return None


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
