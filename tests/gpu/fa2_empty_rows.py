"""vLLM's FlashAttention 2 over pages, with requests of no keys: `python -m tests.gpu.fa2_empty_rows [file]`.

For vllm.dcp-fa2-split, which rests on what that kernel returns. On one NVIDIA GPU from Ampere on, without a model, calls like
those of `run_split_fa2_dcp_context_attention`:

- keys: every request has keys.
- one: some have none, are given one key, and made neutral after the call: what the fix does.
- split: vLLM's own split as the fix runs it, on two ranks in turn, combined over the ranks here.
- decodes: rows of one token, some with no keys, as in the engine's call of decodes today.
- none: some have none, as in a call that takes new prompts along. In a process of its own: it may write past its memory.

Prints a JSON line for each call: the errors against float64 of outputs (relative) and of LSE (absolute), of the rows with keys;
what rows without keys got; and whether an LSE of +inf lies where `flash_fwd_kernel.h` computes it for padded queries. Exits 1
where `keys`, `one` or `split` is wrong. Needs torch, vllm with its compiled FlashAttention 2, and attnfix; no network.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

HEADS = 16  # of all ranks of a group, to the one KV head that each of them has
RANKS = 2
RIGHT = {"out": 0.01, "lse": 0.01}
#: keys of each request, and its new tokens
BATCHES = {
    "before": ((0, 64), (2, 3)),
    "among": ((300, 0, 33, 0, 70), (3, 40, 5, 2, 7)),
    "many": ((0, 1, 0, 1000, 0, 0, 5, 128), (200, 3, 1, 130, 7, 65, 2, 64)),
    "last": ((500, 16, 0), (70, 9, 300)),
}
SHAPES = [(dim, dtype) for dim in (64, 128, 256) for dtype in ("bfloat16", "float16")]
PAGES = (16, 64)


def main() -> int:
    with ThreadPoolExecutor(len(SHAPES)) as shapes:  # where the kernels are PTX, each is compiled first, on one core
        rows = [row for of_shape in shapes.map(lambda shape: run_apart(*shape), SHAPES) for row in of_shape]
    calls, failed = {}, []
    for kind in ("keys", "one", "split", "decodes", "none"):
        right = [row["right"] for row in rows if row.get("kind") == kind]
        calls[kind] = {"calls": len(right), "wrong": right.count(False)}
        if kind in ("keys", "one", "split") and (False in right or len(right) < len(BATCHES) * len(SHAPES) * len(PAGES)):
            failed.append(kind)
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "wrong": failed, "calls": calls}
    print(json.dumps(found), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found | {"rows": rows}, indent=1))
    return bool(failed)


def run_apart(dim: int, dtype: str) -> list[dict[str, Any]]:
    """What processes of this shape print, line by line: with all calls that may not go wrong, and with those that may."""
    rows: list[dict[str, Any]] = []
    for kinds in (("keys", "one", "decodes", "split"), ("none",)):
        command = [sys.executable, "-m", "tests.gpu.fa2_empty_rows", "--shape", str(dim), dtype, *kinds]
        with TemporaryFile("w+") as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as child:
            for line in child.stdout or ():
                rows.append(json.loads(line))
                print(line, end="", flush=True)
            if child.wait():
                said.seek(0)
                rows.append({"shape": [dim, dtype], "died": kinds, "why": said.read().strip().splitlines()[-3:]})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def run(kind: str, dim: int, dtype: str) -> None:
    for (name, (keys, new)), page in product(BATCHES.items(), PAGES):
        if kind == "keys":
            keys = tuple(n or 1 + 37 * b for b, n in enumerate(keys))
        if kind == "decodes":
            new = (1,) * len(new)
        step = Step(keys, new, dim, page, getattr(torch, dtype))
        seen = step.split() if kind == "split" else step.measured(kind)
        print(json.dumps({"kind": kind, "batch": name, "dim": dim, "page": page, "dtype": dtype} | seen), flush=True)


class Step:
    """Requests over a paged cache, in pages in any order."""

    def __init__(self, keys: tuple[int, ...], new: tuple[int, ...], dim: int, page: int, dtype: Any):
        draw = torch.Generator("cuda").manual_seed(dim + page + len(keys))
        tensor = lambda *shape: torch.randn(*shape, generator=draw, device="cuda").to(dtype)  # noqa: E731
        ints = lambda given: torch.tensor(given, dtype=torch.int32, device="cuda")  # noqa: E731
        self.keys, self.new, self.dim, self.page = keys, new, dim, page
        self.at = ints([0, *torch.tensor(new).cumsum(0).tolist()])
        self.lens, width = ints(keys), max(1, -(-max(keys) // page))
        pages = len(keys) * width
        self.table = torch.randperm(pages, generator=draw, device="cuda").int().view(len(keys), width)
        self.q, self.k, self.v = tensor(sum(new), HEADS, dim), tensor(pages, page, 1, dim), tensor(pages, page, 1, dim)
        self.none = torch.tensor([not n for n, rows in zip(keys, new) for _ in range(rows)])
        self.right = tuple(x.cpu() for x in self.exact())

    def launch(self, lens: Any) -> tuple[Any, Any]:
        """As the engine calls it; out starts as zeros there, and LSE where the last tensor of its size lay."""
        from vllm.vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func

        out = torch.zeros_like(self.q)
        stale = torch.full((HEADS, len(self.q)), 3.0, device="cuda")
        del stale
        _, lse = flash_attn_varlen_func(
            q=self.q, k=self.k, v=self.v, out=out, cu_seqlens_q=self.at, max_seqlen_q=max(self.new), seqused_k=lens,
            max_seqlen_k=max(max(self.keys), 1), softmax_scale=self.dim**-0.5, causal=False, alibi_slopes=None,
            window_size=[-1, -1], block_table=self.table, softcap=0.0, return_softmax_lse=True, scheduler_metadata=None,
            fa_version=2, q_descale=None, k_descale=None, v_descale=None, num_splits=0,
        )  # fmt: skip
        torch.cuda.synchronize()
        return out, lse.contiguous()

    def measured(self, kind: str) -> dict[str, Any]:
        out, lse = (x.cpu() for x in self.launch(self.lens.clamp(min=1) if kind == "one" else self.lens))
        if kind == "one":
            out.masked_fill_(self.none[:, None, None], 0)
            lse.masked_fill_(self.none, -math.inf)
        found = self.compared(out, lse)
        if kind == "none":
            found |= self.padded(lse.flatten())
        return found

    def compared(self, out: Any, lse: Any) -> dict[str, Any]:
        """On the host, with what was made before the call: a wrong one may have written anywhere."""
        right_out, right_lse = self.right
        none, rows = self.none, ~self.none
        found: dict[str, Any] = {
            "out": ((out[rows].double() - right_out[rows]).norm() / right_out[rows].norm()).item(),
            "lse": (lse[:, rows].double() - right_lse[:, rows]).abs().nan_to_num(math.inf, math.inf).max().item(),
            "not finite": int((~lse[:, rows].isfinite()).sum()),
            "lse without keys": sorted({str(round(x, 3)) for x in lse[:, none].flatten().tolist()})[:4],
            "out without keys": float(out[none].abs().max()) if bool(none.any()) else 0.0,
        }
        neutral = set(found["lse without keys"]) <= {"inf", "-inf"} and found["out without keys"] == 0
        right = neutral and all(found[name] < most for name, most in RIGHT.items())
        return {name: x if not isinstance(x, float) or math.isfinite(x) else str(x) for name, x in found.items()} | {
            "right": right
        }

    def split(self) -> dict[str, Any]:
        """The cache's keys by turns on the ranks, as of an interleave of one token."""
        from attnfix.patches.vllm.dcp_fa2_split import wrap

        context = torch.tensor(self.keys)
        starts, new = self.at.cpu(), torch.tensor(self.new)
        decodes = int((new > 1).int().argmax())
        covered = wrap.with_context(starts, (context + new).int())
        first = int((~context.bool() & (new > 1)).int().argmax())
        counted = {"num_decode_reqs": decodes, "num_decode_tokens": int(starts[decodes])}
        counted |= {"num_context_prefill_reqs": max(first - decodes, 0)}
        counted |= {"num_context_prefill_tokens": int(starts[max(first, decodes)] - starts[decodes])}
        found = wrap.Covered(covered - decodes, int(starts[covered] - starts[decodes]))
        outs, sums = [], []
        for rank in range(RANKS):
            share = self.share(rank)
            out, lse = wrap.run_split(_Call(share.arguments() | counted, found), None, share.lens, share.at)
            torch.cuda.synchronize()
            outs.append(out.double().cpu())
            sums.append(lse.double().cpu())
        weights = torch.stack(sums)
        total = weights.logsumexp(0)
        weights = (weights - total).exp().nan_to_num(0.0)
        out = sum(x * weight.T[..., None] for x, weight in zip(outs, weights))
        return self.compared(out, total)

    def share(self, rank: int) -> Step:
        """What lies on this rank: pages of its own, of the same keys and values."""
        lens = [len(range(rank, keys, RANKS)) for keys in self.keys]
        own = Step(tuple(lens), self.new, self.dim, self.page, self.q.dtype)
        own.q = self.q
        for b, keys in enumerate(lens):
            for mine, all_of in ((own.k, self.k), (own.v, self.v)):
                at = torch.arange(keys, device="cuda")
                values = all_of[self.table[b].long()].flatten(0, 1)[rank : self.keys[b] : RANKS]
                mine[own.table[b].long()[at // self.page], at % self.page] = values
        return own

    def arguments(self) -> dict[str, Any]:
        """Of `run_split_fa2_dcp_context_attention`, but for the counts."""
        from vllm.vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func

        return dict(
            flash_attn_varlen_func=flash_attn_varlen_func, query_across_dcp=self.q, key_cache=self.k, value_cache=self.v,
            dcp_context_out=torch.full_like(self.q, 7.0), cu_seqlens_q=self.at, max_seqlen_q=max(self.new),
            dcp_context_kv_lens=self.lens, max_dcp_context_kv_len=max(*self.keys, 1), softmax_scale=self.dim**-0.5,
            alibi_slopes=None, sliding_window_size=[-1, -1], block_table=self.table, softcap=0.0, fa_version=2, q_descale=None,
            k_descale=None, v_descale=None, max_num_splits=0, num_heads=HEADS // RANKS, dcp_world_size=RANKS,
        )  # fmt: skip

    def padded(self, lse: Any) -> dict[str, int]:
        """Where a kernel that pads queries puts the LSE of rows without keys: how many places hold +inf, and lie outside."""
        longest, places = max(self.new), []
        for b, (keys, new) in enumerate(zip(self.keys, self.new)):
            if not keys:
                places += [(b * HEADS + head) * longest + row for head in range(HEADS) for row in range(new)]
        inside = [place for place in places if place < len(lse)]
        return {"padded": len(places), "outside": len(places) - len(inside), "inf there": int((lse[inside] == math.inf).sum())}

    def exact(self) -> tuple[Any, Any]:
        """float64, on rows of requests with keys."""
        out = torch.zeros(self.q.shape, dtype=torch.float64, device="cuda")
        lse = torch.full((HEADS, len(self.q)), -math.inf, dtype=torch.float64, device="cuda")
        for b, keys in enumerate(self.keys):
            if keys:
                rows = slice(int(self.at[b]), int(self.at[b + 1]))
                k, v = (cache[self.table[b].long()].flatten(0, 1)[:keys, 0].double() for cache in (self.k, self.v))
                scores = torch.einsum("qhd,kd->hqk", self.q[rows].double(), k) * self.dim**-0.5
                lse[:, rows] = scores.logsumexp(-1)
                out[rows] = torch.einsum("hqk,kd->qhd", scores.softmax(-1), v)
        return out, lse


class _Call:
    """What a correction is called with."""

    def __init__(self, arguments: dict[str, Any], found: Any):
        self.arguments, self.found = arguments, found

    def __call__(self, **changes: Any) -> Any:
        from vllm.v1.worker.cp_utils import run_split_fa2_dcp_context_attention

        return run_split_fa2_dcp_context_attention(**self.arguments | changes)

    def corrected(self) -> None: ...


if __name__ == "__main__":
    if sys.argv[1:2] == ["--shape"]:
        for kind in sys.argv[4:]:
            run(kind, int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
