"""Times the ops on a GPU beside whatever else does the same work, in one run: what `attnfix bench` reports.

Every result is compared with float64 before anything is timed. A time is the median over replays of a CUDA graph of 20 or
more launches that go round several input sets, together four times the L2 cache: inputs come from memory, as in an engine.
`single` is one launch between two events after the L2 was flushed, with its latency. All candidates take turns, so that
clocks drift alike for them.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from . import fixup_zero_kv_rows, kernel_status, merge_attn_states
from .bench_works import COPY, WORKS, Candidate, FixupInputs, MergeInputs, Work

Row = dict[str, Any]

REPEATS = 50
_MAX_SETS = 64
_LAUNCHES = 20  # per graph, at least, unless they take
_LAUNCHED_BYTES = 4 << 30
_MEMORY_SHARE = 0.6  # of the free memory, for all sets of a work


class BenchError(RuntimeError):
    """Nothing can be measured here; the text is the reason."""


def ours_merge(i: MergeInputs, base: str = "e") -> None:
    merge_attn_states(*(i.output, i.prefix, i.prefix_lse, i.suffix, i.suffix_lse, i.output_lse, i.work.context), lse_base=base)


def ours_one_pass(i: MergeInputs) -> None:
    merge_attn_states(
        *(i.output, i.prefix, i.prefix_lse, i.suffix, i.suffix_lse, i.output_lse),
        kv_lens=i.batch.kv_lens,
        cum_seq_lens=i.batch.cum_seq_lens,
    )


def ours_fixup(i: FixupInputs) -> None:
    fixup_zero_kv_rows(i.out, i.lse, i.batch.kv_lens, i.batch.cum_seq_lens)


def copy(i: Any) -> None:
    i.copy.copy_(i.copied)


OURS: dict[str, tuple[Candidate, ...]] = {  # by family
    "merge": (Candidate("attnfix", ours_merge, ours=True),),
    "one pass": (Candidate("attnfix", ours_one_pass, ours=True),),
    "fix-up": (Candidate("attnfix", ours_fixup, ours=True),),
    "base 2": (
        Candidate("attnfix, base e", ours_merge, ours=True),
        Candidate("attnfix, base 2", lambda i: ours_merge(i, "2"), ours=True, base2=True),
    ),
    "copy": (Candidate("torch copy", copy),),
}


# ---- timing


class Timer:
    """Times of calls on the device in microseconds, the L2 flushed before each."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        # Also long enough (over 100 µs) for the host to have queued the call before the start event runs.
        self.flush = torch.empty(max(4 * l2_bytes(), 512 << 20), dtype=torch.int8, device="cuda")

    def __call__(self, call: Callable[[], object]) -> Row:
        """Median, 10 % and 90 % of one call."""
        for _ in range(5):
            call()
        return self.turns([call])[0]

    def turns(self, calls: Sequence[Callable[[], object]], parts: int = 1, flush: bool = True) -> list[Row]:
        """The same for several calls that take turns, each divided by the number of its parts."""
        rounds = []
        torch.cuda.synchronize()
        for _ in range(self.repeats):
            events = [[torch.cuda.Event(enable_timing=True) for _ in "se"] for _ in calls]
            for call, (start, end) in zip(calls, events, strict=True):
                if flush:
                    self.flush.zero_()
                start.record()
                call()
                end.record()
            rounds.append(events)
        torch.cuda.synchronize()
        return [spread([events[i][0].elapsed_time(events[i][1]) * 1e3 / parts for events in rounds]) for i in range(len(calls))]


def spread(times: Sequence[float]) -> Row:
    ordered = sorted(times)
    low, high = (ordered[int(len(ordered) * q)] for q in (0.1, 0.9))
    return {"us": statistics.median(ordered), "us_p10": low, "us_p90": high}


def l2_bytes() -> int:
    return getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0) or 64 << 20


def copy_rate(timer: Timer) -> float:
    """GB/s of a device copy of 1 GiB, reads and writes counted."""
    inputs = COPY.inputs()
    microseconds: float = timer(lambda: copy(inputs))["us"]
    return COPY.bytes / microseconds / 1e3


def host_us(call: Callable[[], object], calls: int = 500) -> float:
    """Host time per call, enqueued without a wait: best of five rounds."""
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    torch.cuda.synchronize()
    return best * 1e6


# ---- rows


def measure(work: Work, candidates: Sequence[Candidate], timer: Timer) -> list[Row]:
    """One row per candidate: its error, its times; or, where it failed, a note of why."""
    row: Row = {"work": work.name, "family": work.family, "bytes": work.bytes}
    rows = [{**row, "by": c.name, "ours": c.ours, "note": c.note} for c in candidates]
    try:
        sets = _sets(work)
        alive = [(c, r) for c, r in zip(candidates, rows, strict=True) if _right(c, sets[0], r)]
        rounds = max(1, min(-(-_LAUNCHES // len(sets)), _LAUNCHED_BYTES // (work.bytes * len(sets))))
        graphs = [(c, r, g) for c, r in alive if (g := _graph(c, sets * rounds, r)) is not None]
        times = timer.turns([g.replay for _, _, g in graphs], len(sets) * rounds, flush=False)
        singles = timer.turns([partial(c.run, sets[0]) for c, _, _ in graphs])
        for (_, r, _), replayed, single in zip(graphs, times, singles, strict=True):
            r |= replayed | {f"single_{key}": value for key, value in single.items()}
            r |= {"sets": len(sets), "gb_s": work.bytes / replayed["us"] / 1e3}
    except Exception as error:  # the next work may be luckier
        for r in rows:
            r["note"] = _said(error)
    sets = alive = graphs = None  # type: ignore[assignment]
    gc.collect()
    torch.cuda.empty_cache()
    return rows


def _sets(work: Work) -> list[Any]:
    """As many inputs as together exceed the L2 four times, and fit the memory."""
    free = torch.cuda.mem_get_info()[0]
    before = torch.cuda.memory_allocated()
    first = work.inputs()
    each = max(torch.cuda.memory_allocated() - before, 1)
    wanted = min(max(2, -(-4 * l2_bytes() // work.bytes)), _MAX_SETS)
    return [first, *(work.inputs() for _ in range(min(wanted, max(1, int(free * _MEMORY_SHARE / each))) - 1))]


def _right(candidate: Candidate, inputs: Any, row: Row) -> bool:
    """Whether it runs at all; its error goes into the row."""
    try:
        inputs.poison()
        if candidate.prepare:
            candidate.prepare(inputs)
        candidate.run(inputs)
        torch.cuda.synchronize()
        row["error"] = inputs.error(candidate.base2)
    except Exception as error:
        row["note"] = _said(error)
        return False
    row["right"] = row["error"] <= 1
    if not row["right"]:
        row["note"] = f"differs from float64 {row['error']:.3g} times as much as rounding"
        row["error"] = min(row["error"], 1e30)  # JSON has no infinity
    return True


def _graph(candidate: Candidate, sets: Iterable[Any], row: Row) -> torch.cuda.CUDAGraph | None:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for inputs in sets:
                candidate.run(inputs)
        graph.replay()
        torch.cuda.synchronize()
    except Exception as error:
        row["note"] = f"not in a CUDA graph: {_said(error)}"
        return None
    return graph


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]


# ---- the whole run

Peers = Callable[[Work], Sequence[Candidate]]


def run(repeats: int = REPEATS, peers: Peers = lambda work: (), progress: Callable[[str], object] = lambda text: None) -> Row:
    """Measure every work by our ops and by `peers`. Raises BenchError where no GPU or no compiled kernel can serve."""
    if not torch.cuda.is_available():
        raise BenchError("no CUDA GPU here")
    started = time.perf_counter()
    first = first_launches()
    require_kernels()
    timer = Timer(repeats)
    copied = measure(COPY, OURS["copy"], timer)[0]
    if "us" not in copied:
        raise BenchError(f"a copy of 1 GiB cannot be measured: {copied['note']}")
    rates = {"graph": copied["gb_s"], "single": COPY.bytes / copied["single_us"] / 1e3}
    fastest = max(rates.values())
    rows = []
    for work in WORKS:
        progress(work.name)
        rows += measure(work, (*OURS[work.family], *peers(work)), timer)
    for row in rows:
        if "us" in row:
            row["share_of_copy"] = row["gb_s"] / fastest
    return {
        "format": 1,
        **machine(),
        "repeats": repeats,
        "copy_gb_s": fastest,
        "copy_gb_s_by": rates,
        "rows": rows,
        "host_us": {f"attnfix {name}": host_us(call) for name, call in small_calls().items()},
        "first_launch_ms": first,
        "seconds": time.perf_counter() - started,
    }


def machine() -> Row:
    return {
        "device": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "l2_bytes": l2_bytes(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }


def small_inputs() -> tuple[MergeInputs, FixupInputs]:
    """So little work that the host alone counts."""
    return MergeInputs(Work("host", "merge", 4, 4)), FixupInputs(Work("host", "fix-up", 4, 4, (4,), (0,)))


def small_calls() -> dict[str, Callable[[], object]]:
    """Calls of ours with nothing around them."""
    m, f = small_inputs()
    return {
        "merge_attn_states": partial(merge_attn_states, m.output, m.prefix, m.prefix_lse, m.suffix, m.suffix_lse, m.output_lse),
        "fixup_zero_kv_rows": partial(fixup_zero_kv_rows, f.out, f.lse, f.batch.kv_lens, f.batch.cum_seq_lens),
    }


def require_kernels() -> None:
    """Raises BenchError unless compiled kernels serve both ops."""
    for name, call in small_calls().items():
        call()
        status = kernel_status()[name]
        if status["path"] != "cuda":
            raise BenchError(f"{name} has no compiled kernel here: {status['reason']}")


def first_launches(processes: int = 3) -> dict[str, float]:
    """Milliseconds of our first and second launch in fresh processes where CUDA runs already, medians; {} if none starts.

    The first one loads the module.
    """
    # The same imports as here, from whatever folder this runs.
    code = f"import sys; sys.path[:] = {sys.path!r}; from attnfix.kernels import bench; bench.first_launch()"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120) for _ in range(processes)]
    if any(done.returncode for done in said):  # such as on a GPU that serves one process alone
        return {}
    times = [json.loads(done.stdout.splitlines()[-1]) for done in said]
    return {key: statistics.median(t[key] for t in times) for key in times[0]}


def first_launch() -> None:
    """Print, as JSON, the host time in ms of this process's first launch of ours and of the next one."""
    inputs, _ = small_inputs()
    torch.cuda.synchronize()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        ours_merge(inputs)
        times.append((time.perf_counter() - start) * 1e3)
        torch.cuda.synchronize()
    print(json.dumps(dict(zip(("first", "second"), times, strict=True))))


def first_calls(call: Callable[[MergeInputs, int], object], counts: Sequence[int]) -> list[float]:
    """Milliseconds of the first call with each prefill_tokens_with_context, after one with 0 that sets everything up."""
    inputs = MergeInputs(Work("first calls", "merge", max(counts), 16))
    times = []
    for count in (0, *counts):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call(inputs, count)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]
