"""Correction of sglang.mamba-snapshot-race.

The state that a chunk of a prompt ends with is copied for the radix cache as the next batch is chosen. The chunk is computed
on another stream: the copy's stream waits for that one on the device.
"""

from __future__ import annotations

from typing import Any


def copies(target: Any, instance: Any) -> bool:
    """Whether a chunk was launched last whose state is about to be copied. Values of the host alone."""
    request = instance.chunked_req
    return (
        request is not None
        and request.mamba_last_track_seqlen is not None
        and instance.enable_overlap
        and getattr(instance, "_chunked_req_scheduled_last_iter", True)
        and getattr(instance.req_to_token_pool, "enable_mamba_extra_buffer", False)
        and not instance.server_args.disable_radix_cache
    )


def behind_the_chunk(call: Any, instance: Any) -> Any:
    wait(instance)
    call.corrected()
    return call()


def wait(scheduler: Any) -> None:
    """What the scheduler's stream is given from now on begins behind all that was launched."""
    scheduler.device_module.current_stream().wait_stream(scheduler.forward_stream)
