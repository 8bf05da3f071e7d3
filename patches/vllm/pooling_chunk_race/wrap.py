"""Correction of vllm.pooling-chunk-race."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm.shared.input_prep import never_waits, with_event


def pools(target: Any, instance: Any, vllm_config: Any) -> bool:
    """Without chunked prefill a prompt ends in each step, and its answer is waited for."""
    pools = vllm_config.model_config.runner_type == "pooling" and vllm_config.scheduler_config.enable_chunked_prefill
    return pools and never_waits(instance, vllm_config)


def init(call: Any, instance: Any) -> None:
    with_event(call, instance)
