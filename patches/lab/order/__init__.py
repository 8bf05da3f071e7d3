"""Happens-before checker: is each read of the engine's code behind its write, and each write behind the reads before it?

    with Order("/sglang/srt/") as order:
        forward = order.stream("forward")                      # `torch.cuda.Stream()` in the engine's code is one of these too
        pool = MHATokenToKVPool(..., device="cuda")            # memory of a GPU that is stood in for
        order.name(pool.k_buffer[0], "K of layer 0")
        controller.start_loading()                             # the engine's own code: streams, events, waits, copies, threads
        with torch.cuda.stream(forward):
            order.launch("attention", reads=[(pool.get_key_buffer(0), rows)])
    assert not order.races, order.report()

Vector clocks: each stream, and each thread of the host, has one. A launch is behind what its thread knew; a wait adds what was
known where its event was recorded. Two accesses of the same bytes, one of them a write, that no chain of launches and waits
orders are a `Race`, whatever the order was in which they ran here. So one run of a scenario speaks for all timings of it.

Seen by itself: streams, events and waits of `torch.cuda`, `torch.cpu` and `torch.accelerator`; the bytes that each aten op
reads and writes, with the rows of indexed ones; copies, with what CUDA does for pinned and pageable memory; `item`, `tolist`
and other reads for which the host waits; memory that goes back to the allocator while another stream uses it; threads, and what
passes from one to another: start, join, locks, conditions, `threading.Event`, queues; arrays of numpy over host memory.
Told by the scenario: kernels, with `launch`, and pages that get another owner, with `handed_over`.

Not seen: what runs beside the recorded branch (a poll is answered as `polls` says); memory that engines reach by a pointer of
their own, unless a stand-in tells it; CUDA graphs; order that holds because a thread happened to come first without a lock.
"""

from .clocks import Operation, Race
from .recorder import Order

__all__ = ["Operation", "Order", "Race"]
