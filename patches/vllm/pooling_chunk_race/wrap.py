"""Correction of vllm.pooling-chunk-race: Model Runner V1 waits for the copies of a step's inputs, which its pinned buffers hold
until the GPU has read them."""

from __future__ import annotations

from typing import Any

RUNNER = "vllm.v1.worker.gpu_model_runner"


def never_waits(target: Any, instance: Any, vllm_config: Any) -> bool:
    """Whether a runner for pooling models on an NVIDIA or AMD GPU gets no event for `synchronize_input_prep` to wait for.

    Runners of other devices derive from its class. Without chunked prefill a prompt ends in each step, and its answer is
    waited for.
    """
    scheduler = vllm_config.scheduler_config
    pools = vllm_config.model_config.runner_type == "pooling" and scheduler.enable_chunked_prefill
    return pools and not scheduler.async_scheduling and type(instance).__module__ == RUNNER


def init(call: Any, instance: Any) -> None:
    """Construct the runner with the event that asynchronous scheduling has."""
    call()
    if instance.prepare_inputs_event is None:
        instance.prepare_inputs_event = input_event()
        call.corrected()


def input_event() -> Any:
    """A rank sleeps while it waits for this event, and takes no CPU from others."""
    import torch

    return torch.cuda.Event(blocking=True)
