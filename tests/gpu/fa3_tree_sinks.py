"""FlashAttention 3 of sgl_kernel with attention sinks: `python -m tests.gpu.fa3_tree_sinks`.

For sglang.fa3-tree-sinks, which rests on what that kernel's LSE holds. On one Hopper GPU, in one process, without a model:

1. Does the LSE hold the sink? Of launches with and without splits, with pages of one token and of 64, without any key.
2. Trees of drafts as the backend attends to them, sinks in both passes and in one: the kernels' own calls and merge.
3. The same through `FlashAttentionBackend`, by the proof of the fix: stock, and corrected.

Every figure is the relative error against float64. Prints them as one JSON object; exits 1 where the fix's assumption is wrong.
Needs torch, sgl_kernel, and for 3 sglang and attnfix; no network.
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import torch

HEADS, KV_HEADS, DIM = 64, 8, 64  # gpt-oss
DRAFTS = 7
#: bfloat16 rounds to 0.004 of a value; sinks counted twice are several times that
RIGHT, WRONG = 0.01, 0.05


def main() -> int:
    from sgl_kernel import merge_state_v2
    from sgl_kernel.flash_attn import flash_attn_with_kvcache

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found["lse"] = [
        lse(flash_attn_with_kvcache, keys, page, splits)
        for keys in (0, 1, 17, 300, 5000)
        for page in (1, 64)
        for splits in (0, 1, 4)
    ]
    found["trees"] = [
        tree(flash_attn_with_kvcache, merge_state_v2, cached, page) for cached in (0, 1, 3, 60, 2000) for page in (1, 64)
    ]
    wrong = failures(found)
    try:
        found["backend"] = backend()
        wrong += backend_failures(found["backend"])
    except Exception as error:
        wrong.append(f"the backend did not run: {type(error).__name__}: {error}")
    print(json.dumps(found | {"wrong": wrong}, indent=1), flush=True)
    return bool(wrong)


class Cache:
    """KV of one request in pages in any order, and queries and sinks to it."""

    def __init__(self, keys: int, page: int, rows: int):
        draw = torch.Generator("cuda").manual_seed(keys)
        pages = max(1, -(-keys // page))
        self.table = torch.randperm(pages, generator=draw, device="cuda").int()[None]
        shape = pages, page, KV_HEADS, DIM
        self.k_cache, self.v_cache = (torch.randn(shape, generator=draw, device="cuda").bfloat16() for _ in "kv")
        self.k, self.v = (cache[self.table[0].long()].flatten(0, 1)[:keys] for cache in (self.k_cache, self.v_cache))
        self.q = torch.randn(rows, HEADS, DIM, generator=draw, device="cuda").bfloat16()
        self.sinks = (torch.randn(HEADS, generator=draw, device="cuda") * 2 + 1).bfloat16()

    def launch(self, kernel: Any, keys: int, rows: int, sinks: Any, splits: int = 0, table: Any = None) -> tuple[Any, Any]:
        """Out [rows, heads, d] and LSE [rows, heads] of all rows to the first `keys` keys."""
        at = torch.tensor([0, rows], dtype=torch.int32, device="cuda")
        given = {} if sinks is None else {"sinks": sinks}
        out, log_sum, *_ = kernel(
            q=self.q, k_cache=self.k_cache, v_cache=self.v_cache, page_table=self.table if table is None else table,
            cache_seqlens=torch.tensor([keys], dtype=torch.int32, device="cuda"), cu_seqlens_q=at, max_seqlen_q=rows,
            softmax_scale=DIM**-0.5, causal=False, window_size=(-1, -1), softcap=0.0, return_softmax_lse=True,
            num_splits=splits, **given,
        )  # fmt: skip
        return out, log_sum.T.contiguous()


def exact(q: Any, k: Any, v: Any, seen: Any, sinks: Any) -> tuple[Any, Any]:
    """float64 attention of rows to the keys that `seen` [rows, keys] names; sinks: [heads], or None."""
    group = HEADS // KV_HEADS
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->qhk", q.double(), k) * DIM**-0.5
    scores = scores.masked_fill(~seen[:, None], -torch.inf)
    total = scores.logsumexp(-1) if k.shape[0] else scores.new_full(scores.shape[:2], -torch.inf)
    if sinks is not None:
        total = torch.logaddexp(total, sinks.double().expand_as(total))
    return torch.einsum("qhk,khd->qhd", (scores - total[..., None]).exp(), v), total


def lse(kernel: Any, keys: int, page: int, splits: int) -> dict[str, Any]:
    """How far the kernel's LSE is from that with the sink and from that without, and its output from float64."""
    cache = Cache(keys, page, DRAFTS)
    out, found = cache.launch(kernel, keys, DRAFTS, cache.sinks, splits)
    seen = torch.ones(DRAFTS, keys, dtype=torch.bool, device="cuda")
    (right, with_sink), (_, without) = (exact(cache.q, cache.k, cache.v, seen, s) for s in (cache.sinks, None))
    row: dict[str, Any] = {"keys": keys, "page": page, "splits": splits}
    if not keys:  # what the merge reads of a pass without keys
        return row | {"lse": sorted({str(x) for x in found.flatten().tolist()})[:3], "out": out.abs().max().item()}
    apart = {name: (found.double() - one).abs().max().item() for name, one in (("with", with_sink), ("without", without))}
    return row | {"from LSE with sink": apart["with"], "from LSE without": apart["without"], "out": error(out, right)}


def tree(kernel: Any, merge: Any, cached: int, page: int) -> dict[str, Any]:
    """Rows of a tree of drafts behind `cached` tokens, in two passes, as `forward_extend` launches them."""
    size = cached + DRAFTS
    cache = Cache(size, page, DRAFTS)
    parents = [None, 0, 0, 1, 1, 2, 3]
    among = torch.eye(DRAFTS, dtype=torch.bool, device="cuda")
    for token, parent in enumerate(parents):
        if parent is not None:
            among[token] |= among[parent]
    position = torch.arange(cached, size, device="cuda")
    slots = cache.table[0].long()[position // page] * page + position % page
    lens = among.sum(1).int()
    table = torch.zeros(DRAFTS, DRAFTS, dtype=torch.int32, device="cuda")
    for token in range(DRAFTS):
        table[token, : lens[token]] = slots[among[token]].int()
    flat = [x.view(-1, 1, KV_HEADS, DIM) for x in (cache.k_cache, cache.v_cache)]

    def passes(first: Any, second: Any) -> Any:
        out, log_sum = cache.launch(kernel, cached, DRAFTS, first)
        given = {} if second is None else {"sinks": second}
        more, log_more, *_ = kernel(
            q=cache.q, k_cache=flat[0], v_cache=flat[1], page_table=table, cache_seqlens=lens,
            cu_seqlens_q=torch.arange(DRAFTS + 1, dtype=torch.int32, device="cuda"), max_seqlen_q=1,
            softmax_scale=DIM**-0.5, causal=False, window_size=(-1, -1), softcap=0.0, return_softmax_lse=True, **given,
        )  # fmt: skip
        return merge(out, log_sum, more, log_more.T.contiguous())[0]

    seen = torch.cat([torch.ones(DRAFTS, cached, dtype=torch.bool, device="cuda"), among], 1)
    right, _ = exact(cache.q, cache.k, cache.v, seen, cache.sinks)
    twice, _ = exact(cache.q, cache.k, cache.v, seen, cache.sinks.double() + torch.tensor(2.0).log().item())
    s = cache.sinks
    both = passes(s, s)
    return {
        "cached": cached,
        "page": page,
        "both passes": error(both, right),
        "both passes, against sinks + ln 2": error(both, twice),
        "second alone": error(passes(None, s), right),
        "first alone": error(passes(s, None), right),
    }


def error(out: Any, right: Any) -> float:
    return ((out.double() - right).norm() / right.norm()).item()


def failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each assumption of the fix that does not hold."""
    wrong = []
    for row in found["lse"]:
        if not row["keys"]:
            if row["lse"] != ["-inf"] or row["out"]:
                wrong.append(f"without a key, the LSE is not -inf, or the output not 0: {row}")
        elif not row["from LSE with sink"] < 0.01:
            wrong.append(f"the LSE does not hold the sink: {row}")
        elif not row["out"] < RIGHT:
            wrong.append(f"the output is wrong: {row}")
    for row in found["trees"]:
        if not row["second alone"] < RIGHT:
            wrong.append(f"sinks in the second pass alone are wrong: {row}")
        if row["cached"] in range(1, 100) and not row["both passes"] > WRONG:
            wrong.append(f"sinks in both passes are right: {row}")
    return wrong


def backend(device: str = "cuda") -> dict[str, Any]:
    """Errors, and whether the controls have equal bits, of the proof with sgl_kernel's kernels."""
    from attnfix.compat.arming.wrapper import WrappedTarget
    from attnfix.compat.status.fix_state import FixState
    from attnfix.patches.lab.proof import run_on
    from attnfix.patches.sglang.fa3_tree_sinks import proof
    from attnfix.patches.sglang.fa3_tree_sinks.fix import FIX

    run_on(device)
    real: Any = type("Real", (proof.Proof,), {"prepare": lambda self: None})()
    kind, state = real.engine[real.modules[0]].FlashAttentionBackend, FixState(FIX)
    sides = {}
    for side in ("stock", "corrected"):
        sides[side] = {name: list(getattr(real, name)(0)) for name in ("scenario", "control")}
        for target in FIX.targets if side == "stock" else ():
            name = target.code_paths[0].qualname.rpartition(".")[2]
            wrapper = WrappedTarget(inspect.unwrap(vars(kind)[name]), target.code_paths[0])
            setattr(kind, name, wrapper.add(state, target.correct, target.needed).function)
        state.armed = True
    found: dict[str, Any] = {
        side: {name: [one.error for one in seen] for name, seen in each.items()} for side, each in sides.items()
    }
    bits = ([one.bits for one in each["control"]] for each in sides.values())
    equal = len({tuple(one) for one in bits}) == 1
    return found | {"equal controls": equal, "corrections": state.counters.corrections, "armed": state.armed}


def backend_failures(found: dict[str, Any]) -> list[str]:
    wrong = []
    if not max(found["stock"]["scenario"]) > WRONG:
        wrong.append("backend: stock is right")
    if not max(found["corrected"]["scenario"]) < RIGHT or not (found["corrections"] and found["armed"]):
        wrong.append("backend: corrected is wrong, or nothing was corrected")
    if not found["equal controls"] or not max(found["stock"]["control"]) < RIGHT:
        wrong.append("backend: controls are wrong, or changed")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
