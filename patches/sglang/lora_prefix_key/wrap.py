"""Correction of sglang.lora-prefix-key.

The cache key of a request with an adapter ends in the adapter's id, which is always 32 hex digits. So a request without one may
have any key but those that end so: its key gets a NUL behind it, and one more where a client sent such a key.
"""

from __future__ import annotations

import re
import sys
from typing import Any

_LIKE_AN_ADAPTERS = re.compile(r"[0-9a-f]{32}\0*\Z")
#: Arguments of a server that let others read keys, or hashes of them -> who does
_READERS = {
    "hicache_storage_backend": "storage backend of HiCache",
    "kv_events_config": "subscriber of KV events",
    "enable_lmcache": "LMCache",
    "enable_flexkv": "FlexKV",
    "radix_cache_backend": "radix cache of --radix-cache-backend",
    "enable_unified_cache_external_linker": "external cache",
}


def looks_like_an_adapters(target: Any, instance: Any, lora_id: Any, extra_key: Any) -> bool:
    """Whether a request without an adapter has a key that one with an adapter may have, and nobody else reads it."""
    if lora_id is not None or not isinstance(extra_key, str) or not _LIKE_AN_ADAPTERS.search(extra_key):
        return False
    args = server_args(target.function.__globals__)
    if args is None:
        return True  # 0.5.3 and 0.5.3.post1 do not say how they were launched, and have no such readers
    if not (getattr(args, "enable_lora", None) or getattr(args, "lora_paths", None)):
        return False
    if read_by := next((who for name, who in _READERS.items() if getattr(args, name, None)), None):
        target.leave_out(f"a {read_by} reads cache keys, which would change")
    return not read_by


def server_args(names: dict[str, Any]) -> Any:
    """How this server was launched, as the engine's modules ask for it in each release."""
    context = sys.modules.get("sglang.srt.runtime_context")
    for ask in (names.get("get_global_server_args"), getattr(context, "get_server_args", None)):  # to 0.5.15.post1, later
        if ask is not None:
            return ask()
    return None


def init(call: Any, instance: Any, extra_key: str) -> Any:
    call(extra_key=apart(extra_key))
    call.corrected()


def apart(key: str) -> str:
    """A key that no request with an adapter has. Different keys stay different."""
    return key + "\0"
