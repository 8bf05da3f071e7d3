"""Proof of vllm.dsv32-indexer-rotary: queries and keys of an indexer, and of the attention that it belongs to.

Real: attention with its constructor, its indexer and its rotary embeddings. Stood in for: the kernel that quantises queries,
and the operator behind it, which selects tokens. Spared: attention without an indexer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple
from unittest.mock import patch

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe, replaced

from . import wrap

_MODEL, _ROTARY = "vllm.model_executor.models.deepseek_v2", "vllm.model_executor.layers.rotary_embedding"
_HEAD, _TURNED, _CONTEXT = 128, 64, 256


class Case(NamedTuple):
    #: Factor of YaRN
    factor: float = 8.0
    base: float = 10000.0
    heads: int = 4
    tokens: int = 33
    indexer: bool = True


class Proof(Cases):
    modules = (_MODEL, _ROTARY)
    kernel = "emulated"
    needs = "Indexer"
    absent = "no sparse MLA"
    bug = (Case(), Case(factor=1.0, heads=1, tokens=1), Case(base=1e6, heads=64))
    spared = (Case(indexer=False), Case(base=1e6, indexer=False))
    broken = {
        "the correction does nothing": (wrap.by_halves, lambda real: False),
    }

    def prepare(self) -> None:
        super().prepare()
        if self._has("SparseAttnIndexer"):
            raise NoSuchPath("indexers have a rotary embedding of their own")

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import MLA, Worker

        torch.manual_seed(seed)
        rope = {
            "rope_type": "deepseek_yarn", "factor": case.factor, "original_max_position_embeddings": _CONTEXT, "beta_fast": 32,
            "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        }  # fmt: skip
        index = {"index_topk": 2048, "index_n_heads": case.heads, "index_head_dim": _HEAD} if case.indexer else {}
        length = int(_CONTEXT * case.factor)
        model = {**MLA, **index, "rope_theta": case.base, "rope_scaling": rope, "max_position_embeddings": length}
        rotary.forget()
        with Worker(model, backend="mla.flashmla.FlashMLABackend", max_tokens=_CONTEXT) as worker, torch.no_grad(), _on_cpu():
            layer = self._attention(worker, rope, case)
            return self._compared(layer, case, length)

    def _attention(self, worker: Any, rope: Any, case: Case) -> Any:
        import torch

        config, kind = worker.config.model_config.hf_config, self.engine[_MODEL].DeepseekV2MLAAttention
        if case.indexer != hasattr(config, "index_topk"):
            raise ValueError("config.json is not read as it is written")
        heads = {name: getattr(config, name) for name in (
            "hidden_size", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank",
            "max_position_embeddings",
        )}  # fmt: skip
        given = {
            **heads, "vllm_config": worker.config, "config": config, "num_heads": config.num_attention_heads,
            "rope_theta": case.base, "rope_scaling": rope, "cache_config": worker.config.cache_config,
            "prefix": "model.layers.0.self_attn",
        }  # fmt: skip
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            return kind(**{name: value for name, value in given.items() if name in signature(kind.__init__).parameters})
        finally:
            torch.set_default_dtype(former)

    def _compared(self, layer: Any, case: Case, length: int) -> Observation:
        """Attention's queries and keys, and behind them those of the indexer."""
        import torch

        from attnfix.patches.lab.rotary import rotated, rotated_in_pairs, yarn

        positions = torch.cat([torch.randint(length, (case.tokens - 1,)), torch.tensor([length - 1])])
        turns = yarn(_TURNED, case.base, case.factor, 32, 1, _CONTEXT, True)
        vectors = torch.randn(case.tokens, case.heads, _TURNED).bfloat16()
        out = [*layer.rotary_emb.forward_native(positions, vectors.clone(), vectors[:, :1].clone())]
        right = [rotated_in_pairs(it.double(), positions, turns) for it in (vectors, vectors[:, :1])]
        if case.indexer:
            for seen, plain in self._indexed(layer, case, positions):
                first, rest = plain.double().split(_TURNED, -1)
                right.append(torch.cat([rotated(first, positions, turns).view(first.shape), rest], -1))
                out.append(seen)
        return observe(torch.cat([it.flatten() for it in out]), torch.cat([it.flatten() for it in right]))

    def _indexed(self, layer: Any, case: Case, positions: Any) -> list[tuple[Any, Any]]:
        """(as the operator gets it, before it was rotated) of queries and of keys, [tokens, heads, dim]."""
        import torch

        home, indexer, seen = self.engine[_MODEL], layer.indexer, {}
        for weight in indexer.parameters():
            weight.data.copy_(torch.randn(weight.shape) / 4)
        inputs, lora = (torch.randn(case.tokens, width).bfloat16() for width in (layer.hidden_size, layer.q_lora_rank))

        def quantised(rows: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            seen["q"] = rows.clone()
            return rows, torch.ones(len(rows), 1)

        def selected(hidden: Any, prefix: str, cache: Any, q: Any, k: Any, *_: Any) -> Any:
            seen["k"] = k.clone()
            return hidden

        with replaced(home, "per_token_group_quant_fp8", quantised), replaced(torch.ops.vllm, "sparse_attn_indexer", selected):
            indexer(inputs, lora, positions, getattr(layer, "indexer_rope_emb", layer.rotary_emb))
        q, k = indexer.wq_b(lora)[0], indexer.k_norm(indexer.wk(inputs)[0])
        return [(seen["q"], q.view(case.tokens, -1, _HEAD)), (seen["k"], k[:, None])]


@contextmanager
def _on_cpu() -> Iterator[None]:
    """Where tables are made: the unspecified platform has no name for it. Compiled code is not taken from a file, as with the
    torch of these releases."""
    platforms: Any = import_module("vllm.platforms")
    with replaced(platforms.current_platform, "device_type", "cpu"), patch.dict(os.environ, VLLM_USE_AOT_COMPILE="0"):
        yield
