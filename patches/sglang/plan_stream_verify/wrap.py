"""Correction of sglang.plan-stream-verify.

Verification is prepared on a stream of its own, which copies what the drafts left. It waits for the stream that drafts here, on
the GPU: the host goes on.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def plans_apart(target: Any, instance: Any) -> bool:
    return instance.plan_stream is not None


def verify(call: Call, instance: Any) -> Any:
    import torch

    wait(instance.plan_stream, torch.get_device_module(instance.device).current_stream())
    call.corrected()
    return call()


def wait(planning: Any, drafting: Any) -> None:
    """What is launched on the stream `planning` from now on runs behind all that `drafting` has."""
    planning.wait_stream(drafting)
