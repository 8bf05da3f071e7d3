"""What the proofs of prompts that the scheduler pads share: who brings a prompt's KV, and ways to break the correction."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any


def connector() -> Any:
    """The engine's own for benchmarks: it says that it has all of a prompt but the last token."""
    made: Any = import_module("vllm.config").KVTransferConfig
    return made(kv_connector="DecodeBenchConnector", kv_role="kv_both")


def leave(real: Any, scheduler: Any) -> Any:
    real(scheduler).__enter__()
    return nullcontext()


def fewer(real: Any, scheduler: Any) -> Any:
    scheduler.num_spec_tokens -= 1
    context = real(scheduler)
    scheduler.num_spec_tokens += 1
    return context
