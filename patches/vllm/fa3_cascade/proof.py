"""Proof of vllm.fa3-cascade: requests that share a prefix, of a layer with sinks, and of one with full graphs.

Real: the config, the layer and the metadata builder by their constructors, the decision for a cascade, `build`, and the layer's
`forward`. Emulated: FlashAttention 3 and its scheduler, and the merge of both parts. The emulated kernel refuses metadata that
was made for another number of splits; the real one may read and write beyond its buffers instead.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, observe, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

_FLASH = "vllm.v1.attention.backends.flash_attn"
_PAGE, _SHARED = 16, 256  # tokens of a page, and of the prefix: the engine takes no shorter one
_CONTEXT, _NEW = tuple(range(257, 273, 2)), (1, 3) * 4  # of eight requests: the engine takes no fewer
_HEADS, _KV_HEADS, _D = 8, 2, 64


class Proof(proof.Proof):
    modules = (_FLASH,)
    cascades = True
    around = {"`--disable-cascade-attn`": {"cascades": False}}

    def __init__(self) -> None:
        kernels.stand_in()  # before the backend binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        module = self.engine[_FLASH]
        if not hasattr(module, "cascade_attention"):
            raise NoSuchPath("FlashAttention has no cascade")
        if "sinks" not in code_of(module.FlashAttentionImpl.__init__).co_varnames:
            raise NoSuchPath("FlashAttention has no sinks, and full graphs go without cascades")
        stand_ins = {
            "flash_attn_varlen_func": flash.flash_attn_varlen_func, "get_scheduler_metadata": flash.get_scheduler_metadata,
            "merge_attn_states": emulators.merge_attn_states, "reshape_and_cache_flash": lambda *args, **kwargs: None,
        }  # fmt: skip
        vars(module).update(stand_ins, get_flash_attn_version=lambda *args, **kwargs: 3)

    def scenario(self, seed: int) -> Observation:
        return combine(self._step(seed, with_sinks=True), self._step(seed, graphs="FULL_AND_PIECEWISE"))

    def control(self, seed: int) -> Observation:
        """A cascade without either; and requests that share nothing, with sinks and with full graphs."""
        return combine(
            self._step(seed),
            self._step(seed, with_sinks=True, shared=0),
            self._step(seed, graphs="FULL_AND_PIECEWISE", shared=0),
        )

    def _step(self, seed: int, with_sinks: bool = False, graphs: str | None = None, shared: int = _SHARED) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        sinks = torch.randn(_HEADS, generator=draw) + 6 if with_sinks else None  # as heavy as what they stand beside
        worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", page_size=_PAGE, graphs=graphs, max_requests=16)
        compilation = worker.config.compilation_config
        if graphs and not compilation.cudagraph_mode.has_full_cudagraphs():  # 0.10 turns them off on all platforms but CUDA's
            compilation.cudagraph_mode, compilation.max_capture_size = type(compilation.cudagraph_mode)[graphs], 512
        with worker:
            layer = worker.layer(0, **({"sinks": sinks} if with_sinks else {}))
            builder = worker.builder([layer])
            batch = worker.batch(_CONTEXT, _NEW)
            batch.block_table_tensor[:, : shared // _PAGE] = batch.block_table_tensor[:1, : shared // _PAGE]
            metadata = builder.build(self._prefix(builder, shared), batch)
        pages = batch.block_table_tensor.long()
        cache = torch.randn(2, int(pages.max()) + 1, _PAGE, _KV_HEADS, _D, generator=draw).bfloat16()
        q = torch.randn(sum(_NEW), _HEADS, _D, generator=draw).bfloat16()
        new = q.new_zeros(sum(_NEW), _KV_HEADS, _D)  # the cache holds them already
        out = torch.zeros_like(q)
        try:
            layer.impl.forward(layer, q, new, new, worker.laid_out(cache), metadata, output=out)
        except flash.MetadataShape as error:
            return Observation(math.inf, str(error))
        return observe(out, _reference(q, cache, pages, sinks))

    def _prefix(self, builder: Any, shared: int) -> int:
        """How much of the shared prefix the engine attends to once for all; the runner asks nobody where cascades are off."""
        import numpy as np

        if not self.cascades:
            return 0
        names = code_of(self.engine[_FLASH].use_cascade_attention).co_varnames
        asked = dict(
            common_prefix_len=shared, query_lens=np.array(_NEW), num_query_heads=_HEADS, num_kv_heads=_KV_HEADS,
            use_alibi=False, use_sliding_window=False, use_local_attention=False, num_sms=132, dcp_world_size=1,
        )  # fmt: skip
        return shared if builder.use_cascade_attention(**{name: asked[name] for name in asked if name in names}) else 0

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "sinks are left out": replaced(wrap, "sinks", lambda impl: None),
            "the kernel chooses its splits": replaced(wrap, "splits", lambda metadata: 0),
        }


def _reference(q: Any, cache: Any, pages: Any, sinks: Any) -> Any:
    import torch

    outs, at = [], 0
    for b, (n, m) in enumerate(zip(_CONTEXT, _NEW)):
        k, v = (part[pages[b]].flatten(0, 1)[: n + m].repeat_interleave(_HEADS // _KV_HEADS, 1) for part in cache)
        out, lse = emulators.attention(q[at : at + m], k, v, _D**-0.5, causal=True)
        if sinks is not None:
            out = out * torch.sigmoid(lse - sinks.double())[..., None]
        outs.append(out)
        at += m
    return torch.cat(outs)
