"""Counts which path served each op in this process. No torch, no CUDA, no clock: cheap enough for every call."""

from __future__ import annotations

import os
import threading
from typing import Any

OPS = ("fixup_zero_kv_rows", "merge_attn_states")


class _Usage:
    def __init__(self) -> None:
        self.path = "unused"
        self.reason: str | None = None
        self.cuda = 0
        self.reference = 0


def _start() -> None:
    # In a forked child too: it counts for itself, and another thread may have held the parent's lock.
    global _lock, _usage
    _lock = threading.Lock()
    _usage = {op: _Usage() for op in OPS}


_lock: threading.Lock
_usage: dict[str, _Usage]
_start()
os.register_at_fork(after_in_child=_start)


def count_cuda(op: str) -> None:
    with _lock:
        usage = _usage[op]
        usage.cuda += 1
        usage.path = "cuda"


def count_reference(op: str, reason: str) -> None:
    with _lock:
        usage = _usage[op]
        usage.reference += 1
        usage.path = "reference"
        usage.reason = reason


def kernel_status() -> dict[str, dict[str, Any]]:
    """What served each op so far in this process.

    Returns, per op: `path` of the last call ("cuda", "reference" or "unused"), `reason` why the torch reference last
    served a call (None if it never did), and `launches`, the number of calls by path: {"cuda": int, "reference": int}.
    A call that returned before any work (no token, no request) is not counted.
    """
    with _lock:
        return {
            op: {"path": u.path, "reason": u.reason, "launches": {"cuda": u.cuda, "reference": u.reference}}
            for op, u in _usage.items()
        }
