"""What the proofs of prompts that the scheduler pads share: who brings a prompt's KV, and ways to break the correction."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any, get_args


def connector() -> dict[str, Any]:
    """How an `Engine` has the engine's own for benchmarks: it says that it has all of a prompt but the last token."""
    made: Any = import_module("vllm.config").KVTransferConfig
    return {"vllm": {"kv_transfer_config": made(kv_connector="DecodeBenchConnector", kv_role="kv_both")}}


def modes() -> list[str]:
    """In which a server of this release can keep states for other requests: "align", and up to 0.30.0 "all"."""
    known = get_args(import_module("vllm.config.cache").MambaCacheMode)
    return [mode for mode in ("align", "all") if mode in known]


def caching(mode: str) -> dict[str, Any]:
    """How an `Engine` keeps states in this mode."""
    return {"caching": mode != "none", "cache": {"mamba_cache_mode": mode}}


def within_a_block(prompt: int) -> int:
    """A prompt of about this length, whose last token has room for three drafts in its block of 16: in mode "align", 0.27.0 to
    0.28.0 clip a padded row at the end of a block. What comes of that is another bug, and not one of Mamba2."""
    begin, last = divmod(prompt - 1, 16)
    return 16 * begin + last % 11 + 2


def leave(real: Any, scheduler: Any) -> Any:
    real(scheduler).__enter__()
    return nullcontext()


def fewer(real: Any, scheduler: Any) -> Any:
    scheduler.num_spec_tokens -= 1
    context = real(scheduler)
    scheduler.num_spec_tokens += 1
    return context
