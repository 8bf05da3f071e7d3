"""Correction of vllm.lora-prefix-key.

A request keeps the function that hashes its blocks. That of a request with an adapter is the engine's own, with the key of an
adapter as 0.31.0 makes it: deterministic, and the same in every process that loads the adapter from that path.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from types import FunctionType
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute
from attnfix.patches.vllm.shared.adapter_paths import AdapterPaths, reader

UTILS = "vllm.v1.core.kv_cache_utils"
_paths = AdapterPaths()


def has_adapter(target: Any, instance: Any, request: Any) -> bool:
    """Whether an adapter goes into hashes of blocks that nobody else reads."""
    if request.lora_request is None or not isinstance(instance.request_block_hasher, FunctionType):
        return False
    if read_by := reader(instance.vllm_config):
        target.leave_out(f"a {read_by} reads the hashes of blocks, which would change")
    return not read_by


def preprocess_add_request(call: Call, instance: Any) -> Any:
    """Returns the engine's request and its wave. The request keeps its hasher, and hashes its answer by it, too."""
    with attribute(instance, "request_block_hasher", with_paths(instance.request_block_hasher)):
        result = call()
    if _paths.had_another(result[0].lora_request):
        call.corrected()
    return result


@lru_cache(maxsize=4)
def with_paths(hasher: FunctionType) -> FunctionType:
    """One for all requests of an engine, so that a request holds nothing of the call that made it.

    It runs for each block, and a plain dict of globals is as fast as the engine's.
    """
    extra_keys = _twin(sys.modules[UTILS].generate_block_hash_extra_keys, _gen_lora_extra_hash_keys=adapter_keys)
    return _twin(hasher, generate_block_hash_extra_keys=extra_keys)


def _twin(function: FunctionType, **names: Any) -> FunctionType:
    """The function with these globals; the others are the engine's as they are now."""
    given = {**function.__globals__, **names}
    return FunctionType(function.__code__, given, function.__name__, function.__defaults__, function.__closure__)


def adapter_keys(request: Any) -> list[tuple[str, str, str]]:
    """The tuple is no string, so that it equals no `cache_salt`. Threads that share an engine may each see the hasher of
    another's request: without an adapter it gives the engine's hashes."""
    adapter = request.lora_request
    return [("lora", adapter.lora_name, str(adapter.lora_path))] if adapter else []
