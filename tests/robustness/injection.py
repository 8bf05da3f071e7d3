"""Raises, or ends the process, at one chosen step of attnfix: a step is a line of its code that can raise.

Counted by a trace function over the frames of attnfix alone. A line that runs somebody else's code (the engine's module,
another finder) is no step: what is raised there is theirs, and passes.
"""

from __future__ import annotations

import dis
import linecache
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Where attnfix's code lies; what proofs need to import an engine here is in no serving process
FOLDERS = tuple(str(ROOT / name) + "/" for name in ("attnfix", "compat", "patches", "kernels"))
_TOOLS = str(ROOT / "attnfix" / "prove") + "/"
_THEIRS = ("self.loader.exec_module(", "self.loader.create_module(", "finder.find_spec(", "return wrapped(")
#: Cannot raise
_PLAIN = frozenset(
    {
        "NOP", "RESUME", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "POP_TOP", "RETURN_VALUE", "JUMP_FORWARD", "JUMP_BACKWARD",
        "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "COPY", "SWAP", "CACHE", "MAKE_CELL", "COPY_FREE_VARS", "PUSH_NULL",
        "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "LOAD_ASSERTION_ERROR", "RETURN_CONST", "END_FOR",
    }
)  # fmt: skip


@cache
def _steps(code: CodeType) -> frozenset[int]:
    """Lines of `code` at which a fault is one of attnfix."""
    lines: dict[int, set[str]] = {}
    names = {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}
    for start, end, line in code.co_lines():
        if line is not None:
            lines.setdefault(line, set()).update(names[offset] for offset in range(start, end) if offset in names)
    return frozenset(
        line
        for line, names in lines.items()
        if not names <= _PLAIN and not any(text in linecache.getline(code.co_filename, line) for text in _THEIRS)
    )


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Injection:
    """Does `fault` at step `at`, counted from 1 (0: never, to count the steps). `site` says where that was."""

    def __init__(self, at: int, fault: Callable[[], None], then: int = 0):
        """`then`: raise MemoryError a second time, at the so many-th call that follows."""
        self.at, self.fault, self.then = at, fault, then
        self.sites: list[tuple[str, int]] = []  # of every step so far
        self.site: str | None = None

    def __enter__(self) -> Injection:
        sys.settrace(self._frame)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _frame(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(FOLDERS) or file.startswith(_TOOLS):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and frame.f_lineno in _steps(frame.f_code):
            self.sites.append((frame.f_code.co_filename.removeprefix(str(ROOT) + "/"), frame.f_lineno))
            if len(self.sites) == self.at:
                self.site = "{}:{}".format(*self.sites[-1])
                if self.then:
                    sys.setprofile(self._again)
                self.fault()
        return self._line

    def _again(self, frame: FrameType, event: str, arg: Any) -> None:
        # Nothing stands behind the last resort but the hook itself
        code = frame.f_code
        last_resort = getattr(code, "co_qualname", code.co_name).startswith("broken")
        ours = code.co_filename.startswith(FOLDERS) and not last_resort
        if event == "call":  # an entry from outside is a fault of whoever calls
            ours = ours and frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(FOLDERS)
        if event in ("call", "c_call") and ours:
            self.then -= 1
            if self.then == 0:
                self.site = f"{self.site}, then {code.co_filename.removeprefix(str(ROOT) + '/')}:{frame.f_lineno}"
                raise MemoryError("injected again")


def raising(error: type[BaseException]) -> Callable[[], None]:
    def fault() -> None:
        raise error("injected")

    return fault
