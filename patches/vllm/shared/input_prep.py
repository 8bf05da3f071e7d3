"""Wait of Model Runner V1 for the copies of a step's inputs, which its pinned buffers hold until the GPU has read them."""

from __future__ import annotations

from typing import Any

RUNNER = "vllm.v1.worker.gpu_model_runner"
#: Code that decides whether a step waits for the copies of the one before
WAITS = (
    f"{RUNNER}:GPUModelRunner.synchronize_input_prep",
    f"{RUNNER}:GPUModelRunner.execute_model",
    "vllm.v1.utils:CpuGpuBuffer.copy_to_gpu",
)


def never_waits(instance: Any, config: Any) -> bool:
    """Whether a runner on an NVIDIA or AMD GPU is without the event for which `synchronize_input_prep` waits: runners of other
    devices derive from this class."""
    return type(instance).__module__ == RUNNER and not config.scheduler_config.async_scheduling


def with_event(call: Any, instance: Any) -> None:
    """Construct the runner with the event that asynchronous scheduling has."""
    call()
    if instance.prepare_inputs_event is None:
        instance.prepare_inputs_event = input_event()
        call.corrected()


def input_event() -> Any:
    """Who waits for it sleeps, so that a waiting rank takes no CPU from others."""
    import torch

    return torch.cuda.Event(blocking=True)
