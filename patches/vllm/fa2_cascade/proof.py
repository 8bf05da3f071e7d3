"""Proof of vllm.fa2-cascade: decode steps of requests that share a prefix, on FlashAttention 2.

Real: the config, the layer and the metadata builder by their constructors, the decision for a cascade, `build`, and the layer's
`forward`. Emulated: FlashAttention 2 with the fault of its release, by its source (`flash_api.cpp` at the commit that the
release's source archive names: `num_splits_heuristic`, and the order of the LSEs), and the merge of both parts. Nothing of a
release's Python says which commit that is. The GPU has 14 multiprocessors, as a slice of an A100: few requests fill it.
"""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, NamedTuple

from packaging.version import Version

from attnfix.patches.lab import emulators
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import Cases, Observation, code_of, observe, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

from .wrap import may_split

_FLASH = "vllm.v1.attention.backends.flash_attn"
_PAGE, _SHARED, _UNITS = 16, 256, 14
_MENDED = Version("0.11.1")


class Step(NamedTuple):
    """Requests of which each has some own tokens behind the shared prefix, the last one the most."""

    requests: int = 8
    longest: int = 600  # three blocks of keys, each a split of its own
    kv_heads: int = 2
    new: int = 1
    fa: int = 2
    size: int = 64


class Proof(Cases):
    modules = (_FLASH,)
    needs = "cascade_attention"
    absent = "FlashAttention has no cascade"
    cascades = True
    bug = (Step(), Step(9, 900), Step(longest=300, size=128))
    spared = (
        Step(longest=400),  # two blocks: one split
        Step(12),  # enough requests for one split
        Step(3),  # too few for a cascade
        Step(kv_heads=8),
        Step(new=2),
        Step(fa=3),
    )
    around = {"`--disable-cascade-attn`": {"cascades": False}}
    broken = {
        "the correction does nothing": (may_split, lambda real, *shape: False),
        "queries count for the heads of keys": (may_split, lambda real, tiles, slots, blocks: real(4 * tiles, slots, blocks)),
        "one block is left out": (may_split, lambda real, tiles, slots, blocks: real(tiles, slots, blocks - 1)),
    }

    def __init__(self) -> None:
        kernels.stand_in()  # before the backend binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        stand_ins = {
            "flash_attn_varlen_func": _flash_attention, "get_scheduler_metadata": flash.get_scheduler_metadata,
            "merge_attn_states": emulators.merge_attn_states, "reshape_and_cache_flash": lambda *args, **kwargs: None,
        }  # fmt: skip
        vars(self.engine[_FLASH]).update(stand_ins)

    def run(self, case: Step, seed: int) -> Observation:
        import torch

        self.engine[_FLASH].get_flash_attn_version = lambda *args, **kwargs: case.fa
        draw = torch.Generator().manual_seed(seed)
        model = DENSE | {"num_key_value_heads": case.kv_heads, "head_dim": case.size}
        heads = model["num_attention_heads"]
        context = [_SHARED + 1 + case.longest * (b + 1) // case.requests - case.new for b in range(case.requests)]
        worker = Worker(model, backend="flash_attn.FlashAttentionBackend", page_size=_PAGE, max_requests=16, max_tokens=2048)
        with worker, replaced(torch.cuda, "get_device_properties", lambda device=None: _GPU):
            layer = worker.layer(0)
            builder = worker.builder([layer])
            batch = worker.batch(context, [case.new] * case.requests)
            batch.block_table_tensor[:, : _SHARED // _PAGE] = batch.block_table_tensor[:1, : _SHARED // _PAGE]
            metadata = builder.build(self._prefix(builder, case, heads), batch)
        pages = batch.block_table_tensor.long()
        cache = torch.randn(2, int(pages.max()) + 1, _PAGE, case.kv_heads, case.size, generator=draw).bfloat16()
        q = 3 * torch.randn(case.requests * case.new, heads, case.size, generator=draw).bfloat16()
        new = q.new_zeros(len(q), case.kv_heads, case.size)  # the cache holds them already
        out = torch.zeros_like(q)
        layer.impl.forward(layer, q, new, new, worker.laid_out(cache), metadata, output=out)
        rows = []
        for b, n in enumerate(context):
            k, v = (part[pages[b]].flatten(0, 1)[: n + case.new].repeat_interleave(heads // case.kv_heads, 1) for part in cache)
            mine = q[b * case.new : (b + 1) * case.new]
            rows.append(emulators.attention(mine, k, v, case.size**-0.5, causal=True)[0])
        return observe(out, torch.cat(rows))

    def _prefix(self, builder: Any, case: Step, heads: int) -> int:
        """How much of the shared prefix the engine attends to once for all; the runner asks nobody where cascades are off."""
        import numpy as np

        if not self.cascades:
            return 0
        names = code_of(self.engine[_FLASH].use_cascade_attention).co_varnames
        asked = dict(
            common_prefix_len=_SHARED, query_lens=np.full(case.requests, case.new), num_query_heads=heads,
            num_kv_heads=case.kv_heads, use_alibi=False, use_sliding_window=False, use_local_attention=False, num_sms=_UNITS,
            dcp_world_size=1,
        )  # fmt: skip
        return _SHARED if builder.use_cascade_attention(**{name: asked[name] for name in asked if name in names}) else 0


_GPU = SimpleNamespace(multi_processor_count=_UNITS, major=8, minor=0, total_memory=5 << 30)


def _flash_attention(*, fa_version: int, q: Any, k: Any, max_seqlen_q: int, max_seqlen_k: int, **launch: Any) -> Any:
    """Of version 2, LSEs of splits come as [KV heads, group, requests]; up to 0.11.0 they are read in another order."""
    found = flash.flash_attn_varlen_func(q=q, k=k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, **launch)
    (requests, heads, size), kv_heads = q.shape, k.shape[-2]
    if not isinstance(found, tuple) or fa_version != 2 or max_seqlen_q > 1 or heads == kv_heads:
        return found
    if Version(version("vllm")) >= _MENDED or _splits(requests * kv_heads, max_seqlen_k, size) == 1:
        return found
    out, lse = found
    return out, lse.reshape(kv_heads, requests, heads // kv_heads).transpose(1, 2).reshape(heads, requests)


def _splits(tiles: int, keys: int, size: int) -> int:
    slots, blocks = 2 * _UNITS, -(-keys // {64: 256, 128: 128}[size])
    if tiles >= 0.8 * slots:
        return 1
    waves = {n: tiles * n / slots for n in range(1, blocks + 1) if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))}
    filled = {n: wave / -(-wave // 1) for n, wave in waves.items()}
    return next(n for n in filled if filled[n] >= 0.85 * max(filled.values()))
