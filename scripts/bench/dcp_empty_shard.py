"""What vllm.dcp-empty-shard adds to a decode layer, and what a mask over all rows adds, on a GPU.

    python -m scripts.bench.dcp_empty_shard

Needs torch with CUDA and an installed attnfix with its kernels. Both make the same bits, which is checked first. A time is the
median over replays of a CUDA graph of 61 layers, each with an output of its own, as in a step of DeepSeek. Both take turns.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch

from attnfix.patches.vllm.dcp_empty_shard.wrap import neutralize

LAYERS, HEADS, SIZE, REPLAYS = 61, 128, 512, 50


def masked(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
    """As this fix did before: every row is read and written."""
    empty = (seq_lens == 0).repeat_interleave(queries) if queries > 1 else seq_lens == 0
    out.masked_fill_(empty[:, None, None], 0)
    lse.masked_fill_(empty[:, None], -math.inf)


def captured(step: Callable, outs: list, lses: list, seq_lens: Any, queries: int) -> torch.cuda.CUDAGraph:
    step(outs[0], lses[0], seq_lens, queries)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for out, lse in zip(outs, lses):
            step(out, lse, seq_lens, queries)
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; ms for {LAYERS} layers")
    print(f"{'requests':>8} {'queries':>7} {'empty':>5} {'mask':>8} {'kernel':>8}")
    for requests, queries in ((8, 1), (64, 1), (256, 1), (64, 4)):
        rows = requests * queries
        outs = [torch.randn(rows, HEADS, SIZE, device="cuda").bfloat16() for _ in range(LAYERS)]
        lses = [torch.randn(rows, HEADS, device="cuda") for _ in range(LAYERS)]
        for empty in (0, 1, requests):
            seq_lens = torch.full((requests,), 100, dtype=torch.int32, device="cuda")
            seq_lens[:empty] = 0
            results = []
            for step in (masked, neutralize):
                results.append((outs[0].clone(), lses[0].clone()))
                step(*results[-1], seq_lens, queries)
            assert all(one.equal(other) for one, other in zip(*results)), "both make the same bits"
            graphs = [captured(step, outs, lses, seq_lens, queries) for step in (masked, neutralize)]
            times: list[list[float]] = [[], []]
            for _ in range(REPLAYS):
                for taken, graph in zip(times, graphs):
                    taken.append(milliseconds(graph))
            mask, kernel = map(statistics.median, times)
            print(f"{requests:>8} {queries:>7} {empty:>5} {mask:>8.3f} {kernel:>8.3f}")


if __name__ == "__main__":
    main()
