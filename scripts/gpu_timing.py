"""Times on the device, for the scripts that measure there."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch


class Timer:
    """Median time of a call on the device in microseconds, L2 flushed before each run."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20
        # Also long enough (tens of microseconds) for the host to have queued the call before the start event runs.
        self.flush = torch.empty(max(4 * l2, 256 << 20), dtype=torch.int8, device="cuda")

    def __call__(self, call: Callable[[], object]) -> dict:
        for _ in range(5):
            call()
        events = [[torch.cuda.Event(enable_timing=True) for _ in "se"] for _ in range(self.repeats)]
        torch.cuda.synchronize()
        for start, end in events:
            self.flush.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        times = sorted(start.elapsed_time(end) * 1e3 for start, end in events)
        low, high = (times[int(len(times) * q)] for q in (0.1, 0.9))
        return {"us": statistics.median(times), "us_p10": low, "us_p90": high}


def copy_rate(timer: Timer) -> float:
    """GB/s of a device copy of 1 GiB, reads and writes counted."""
    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / timer(lambda: target.copy_(source))["us"] / 1e3
