"""Chunk ends and the bits of FlashAttention 3 in sglang's deterministic mode: `python -m tests.gpu.fa3_chunk_ends [file]`.

sglang's change 28063 says that answers of deterministic inference depend on where a prompt is cut into chunks: sglang aligns
the ends for other backends alone. On one Hopper GPU, prompts are attended to whole and in chunks that end anywhere, alone and
beside other requests, as `FlashAttentionBackend.forward_extend` calls the kernel there: one split, a page table, causal.

Prints a JSON line for each case with the number of rows whose bits differ. Exits 1 where there are any. Needs torch and the
compiled kernels of sglang.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch

SHAPES = ((32, 8, 128), (16, 2, 64), (8, 1, 256), (8, 8, 128), (28, 4, 128), (24, 1, 192))  # heads, KV heads, size
LENGTH, DRAWS = 1500, 12


def main() -> int:
    rows = []
    for shape, page, window, cap in product(SHAPES, (1, 16, 64), ((-1, -1), (127, 0)), (0.0, 30.0)):
        for dtype in (torch.bfloat16, torch.float16):
            if dtype is torch.float16 and (page != 1 or cap):
                continue
            prompt = Prompt(*shape, page, window, cap, dtype)
            whole, right, draw = prompt.attended([(0, LENGTH)]), prompt.exact(), random.Random(page)
            differ, furthest = 0, 0.0
            for _ in range(DRAWS):
                ends = [0, *sorted(draw.sample(range(1, LENGTH), draw.choice((1, 2, 5)))), LENGTH]
                parts = [prompt.attended([(a, b)], beside=draw.choice((0, 1, 7))) for a, b in pairwise(ends)]
                differ += int((torch.cat(parts) != whole).flatten(1).any(1).sum())
                furthest = max(furthest, float((torch.cat(parts) - right).abs().max()))
            about = {"heads": shape, "page": page, "window": window[0], "cap": cap, "dtype": str(dtype)}
            errors = {"error of chunks": furthest, "error of whole": float((whole - right).abs().max())}
            again = int((prompt.attended([(0, LENGTH)]) != whole).flatten(1).any(1).sum())
            rows.append(about | {"rows": DRAWS * LENGTH, "differ": differ, "differ once more": again} | errors)
            print(json.dumps(rows[-1]), flush=True)
    differing = sum(row["differ"] > 0 for row in rows)
    found = {"device": torch.cuda.get_device_name(), "cases": len(rows), "cases that differ": differing}
    print(json.dumps(found), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found | {"rows": rows}, indent=1))
    return int(differing > 0)


class Prompt:
    """Random queries, keys and values of one prompt; its pages lie scattered in a cache of four times as many."""

    def __init__(self, heads: int, kv_heads: int, size: int, page: int, window: tuple[int, int], cap: float, dtype: Any):
        draw = torch.Generator("cuda").manual_seed(heads + size)
        tensor = lambda *shape: torch.randn(*shape, generator=draw, device="cuda").to(dtype)  # noqa: E731
        pages = -(-LENGTH // page)
        self.query, self.window, self.cap, self.scale = tensor(LENGTH, heads, size), window, cap, size**-0.5
        self.keys, self.values = tensor(4 * pages, page, kv_heads, size), tensor(4 * pages, page, kv_heads, size)
        self.table = torch.randperm(4 * pages, generator=draw, device="cuda")[:pages].to(torch.int32)

    def exact(self) -> Any:
        """float64 [tokens, heads, size]: what is right of the whole prompt."""
        at = torch.arange(LENGTH, device="cuda")
        page = self.keys.shape[1]
        slots = self.table[at // page].long() * page + at % page
        keys, values = (it.flatten(0, 1)[slots].double() for it in (self.keys, self.values))
        group = self.query.shape[1] // keys.shape[1]
        scores = torch.einsum("qhd,khd->hqk", self.query.double(), keys.repeat_interleave(group, 1)) * self.scale
        scores = self.cap * torch.tanh(scores / self.cap) if self.cap else scores
        behind = at[:, None] - at[None]
        seen = (behind >= 0) & ((behind <= self.window[0]) if self.window[0] >= 0 else (behind >= 0))
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1))

    def attended(self, chunk: list[tuple[int, int]], beside: int = 0) -> Any:
        """The prompt's rows of a chunk [start, end), in a batch with `beside` more requests of other lengths."""
        from sgl_kernel.flash_attn import flash_attn_with_kvcache

        spans = chunk + [(0, 90 + 37 * i) for i in range(beside)]
        numbers = lambda values: torch.tensor(values, dtype=torch.int32, device="cuda")  # noqa: E731
        ends = [0]
        for a, b in spans:
            ends.append(ends[-1] + b - a)
        starts = numbers(ends)
        out = flash_attn_with_kvcache(
            q=torch.cat([self.query[a:b] for a, b in spans]),
            k_cache=self.keys,
            v_cache=self.values,
            page_table=self.table.expand(len(spans), -1).contiguous(),
            cache_seqlens=numbers([b for _, b in spans]),
            cu_seqlens_q=starts,
            cu_seqlens_k_new=numbers([0, *torch.tensor([b for _, b in spans]).cumsum(0).tolist()]),
            max_seqlen_q=max(b - a for a, b in spans),
            softmax_scale=self.scale,
            causal=True,
            window_size=self.window,
            softcap=self.cap,
            num_splits=1,
        )
        return out[: ends[1]]


if __name__ == "__main__":
    sys.exit(main())
