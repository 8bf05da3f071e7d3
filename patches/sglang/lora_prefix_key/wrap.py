"""Correction of sglang.lora-prefix-key.

The cache key of a request with an adapter ends in the adapter's id, which is always 32 hex digits. So a request without one may
have any key but those that end so: its key gets a NUL behind it, and one more where a client sent such a key.
"""

from __future__ import annotations

import re
from typing import Any

from attnfix.patches.sglang.shared import launch

_LIKE_AN_ADAPTERS = re.compile(r"[0-9a-f]{32}\0*\Z")
_READERS = {"hicache_storage_backend": "a storage backend of HiCache", "kv_events_config": "a subscriber of KV events"}


def looks_like_an_adapters(target: Any, instance: Any, lora_id: Any, extra_key: Any) -> bool:
    """Whether a request without an adapter has a key that one with an adapter may have, and nobody else reads it."""
    if lora_id is not None or not isinstance(extra_key, str) or not _LIKE_AN_ADAPTERS.search(extra_key):
        return False
    args = launch.server_args()
    if args is None:
        return True  # nobody says it, as in 0.5.3 and 0.5.3.post1 outside a server: those have no such readers
    if not (getattr(args, "enable_lora", None) or getattr(args, "lora_paths", None)):
        return False
    if read_by := launch.reader(args, _READERS):
        target.leave_out(f"{read_by} reads cache keys, which would change")
    return not read_by


def init(call: Any, instance: Any, extra_key: str) -> Any:
    call(extra_key=apart(extra_key))
    call.corrected()


def apart(key: str) -> str:
    """A key that no request with an adapter has. Different keys stay different."""
    return key + "\0"
