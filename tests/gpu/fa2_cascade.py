"""vLLM's FlashAttention 2 in steps of decodes behind one prefix: `python -m tests.gpu.fa2_cascade [file]`.

For vllm.fa2-cascade, whose proof emulates that kernel by its source. On one NVIDIA GPU from Ampere on, without a model, for
numbers of requests and lengths around the bounds of `may_split`:

- lse: the launch for the rest of each request. Its LSE against float64, as it comes and in the order of [KV heads, group,
  requests] that is read as [KV heads, requests, group].
- cascade: vLLM's `cascade_attention` with FlashAttention 2, against float64.
- whole: the launch of a step without a cascade, as the fix has it, against float64.

Prints a JSON line for each step. Exits 1 where a step is wrong for which `may_split` says one split, or where `whole` is wrong.
Releases 0.10.0-0.11.0 have wrong cascades, 0.11.1 has none. Needs torch, vllm with its compiled FlashAttention 2, and attnfix.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

from attnfix.patches.vllm.fa2_cascade.wrap import may_split

PREFIX, PAGE, MOST = 256, 16, 0.01
SHAPES = ((32, 8, 128), (16, 2, 64), (8, 1, 256), (8, 8, 128))  # heads, KV heads, size


def main() -> int:
    units = torch.cuda.get_device_properties(0).multi_processor_count
    rows = []
    for (heads, kv_heads, size), dtype in product(SHAPES, (torch.bfloat16, torch.float16)):
        block = 256 if size <= 64 else 128 if size <= 128 else 64
        for share, blocks in product((0.3, 0.55, 0.7, 0.79, 0.81, 1.1), (1, 2, 3, 5)):
            requests = max(8, int(share * 2 * units / kv_heads))
            rows.append(Step(requests, blocks * block - 5, heads, kv_heads, size, dtype).measured(units, blocks))
            print(json.dumps(rows[-1]), flush=True)
    failed = [row for row in rows if row["whole"] > MOST or (not row["may split"] and max(row["lse"], row["cascade"]) > MOST)]
    wrong = [row for row in rows if row["cascade"] > MOST]
    found = {"device": torch.cuda.get_device_name(), "steps": len(rows), "wrong cascades": len(wrong), "failed": len(failed)}
    found["may split and right"] = sum(row["may split"] and row["lse"] <= MOST for row in rows)
    print(json.dumps(found), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found | {"rows": rows}, indent=1))
    return bool(failed)


class Step:
    """Requests of one token each: the prefix in pages of all, then up to `longest` keys of their own."""

    def __init__(self, requests: int, longest: int, heads: int, kv_heads: int, size: int, dtype: Any):
        draw = torch.Generator("cuda").manual_seed(requests + longest + size)
        tensor = lambda *shape: torch.randn(*shape, generator=draw, device="cuda").to(dtype)  # noqa: E731
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        own = [1 + (longest - 1) * (b + 1) // requests for b in range(requests)]
        self.own, self.most = torch.tensor(own, dtype=torch.int32, device="cuda"), max(own)
        shared, each = PREFIX // PAGE, -(-longest // PAGE)
        rows = torch.arange(requests * each, dtype=torch.int32, device="cuda").view(requests, each) + shared
        first = torch.arange(shared, dtype=torch.int32, device="cuda").expand(requests, -1)
        self.table = torch.cat([first, rows], 1).contiguous()
        self.q = 3 * tensor(requests, heads, size)
        self.k, self.v = (
            tensor(shared + rows.numel(), PAGE, kv_heads, size),
            tensor(shared + rows.numel(), PAGE, kv_heads, size),
        )
        self.at = torch.arange(requests + 1, dtype=torch.int32, device="cuda")

    def measured(self, units: int, blocks: int) -> dict[str, Any]:
        from vllm.v1.attention.backends.flash_attn import cascade_attention

        requests, group = len(self.q), self.heads // self.kv_heads
        right_lse, _ = self.exact(PREFIX)
        _, lse = self.launch(self.table[:, PREFIX // PAGE :], self.own, self.most, return_softmax_lse=True)
        read = right_lse.view(self.kv_heads, group, requests).reshape(self.kv_heads, requests, group).transpose(1, 2)
        _, right = self.exact(0)
        whole = self.launch(self.table, self.own + PREFIX, self.most + PREFIX, return_softmax_lse=False)
        out = torch.zeros_like(self.q)
        cascade_attention(
            out, self.q, self.k, self.v, cu_query_lens=self.at, max_query_len=1,
            cu_prefix_query_lens=torch.tensor([0, requests], dtype=torch.int32, device="cuda"),
            prefix_kv_lens=torch.tensor([PREFIX], dtype=torch.int32, device="cuda"), suffix_kv_lens=self.own,
            max_kv_len=PREFIX + self.most, softmax_scale=self.size**-0.5, alibi_slopes=None, sliding_window=(-1, -1),
            logits_soft_cap=0.0, block_table=self.table, common_prefix_len=PREFIX, fa_version=2,
        )  # fmt: skip
        torch.cuda.synchronize()
        return {
            "requests": requests, "blocks": blocks, "heads": [self.heads, self.kv_heads, self.size], "dtype": str(self.q.dtype),
            "may split": group > 1 and may_split(requests * self.kv_heads, 2 * units, blocks),
            "lse": (lse.double() - right_lse).abs().max().item(),
            "lse in the other order": (lse.double() - read.reshape(self.heads, requests)).abs().max().item(),
            "cascade": self.error(out, right), "whole": self.error(whole, right),
        }  # fmt: skip

    def launch(self, table: Any, lens: Any, most: int, **more: Any) -> Any:
        from vllm.vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func

        return flash_attn_varlen_func(
            q=self.q, k=self.k, v=self.v, cu_seqlens_q=self.at, max_seqlen_q=1, seqused_k=lens, max_seqlen_k=most,
            softmax_scale=self.size**-0.5, causal=True, window_size=[-1, -1], block_table=table, fa_version=2, **more,
        )  # fmt: skip

    def exact(self, skipped: int) -> tuple[Any, Any]:
        """(LSE [heads, requests], out) in float64, of the keys behind the first `skipped`."""
        sums, outs = [], []
        for b, own in enumerate(self.own.tolist()):
            k, v = (cache[self.table[b].long()].flatten(0, 1)[skipped : PREFIX + own].double() for cache in (self.k, self.v))
            k, v = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (k, v))
            scores = torch.einsum("hd,khd->hk", self.q[b].double(), k) * self.size**-0.5
            sums.append(scores.logsumexp(-1))
            outs.append(torch.einsum("hk,khd->hd", scores.softmax(-1), v))
        return torch.stack(sums, 1), torch.stack(outs)

    @staticmethod
    def error(out: Any, right: Any) -> float:
        return ((out.double() - right).norm() / right.norm()).item()


if __name__ == "__main__":
    sys.exit(main())
