"""Proof of vllm.gpt-oss-rotary: queries and keys that the rotary embedding of gpt-oss's layers rotates.

Real: the config of a tiny gpt-oss, two of its attention layers and their rotary embedding. Spared: checkpoints that ask for
rounded bounds, or ask for nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, combine, observe

from . import wrap

_MODEL, _ROTARY = "vllm.model_executor.models.gpt_oss", "vllm.model_executor.layers.rotary_embedding"
_LONGEST, _CONTEXT, _HEADS, _BASE = 131072, 4096, 8, 150000.0


class Case(NamedTuple):
    truncate: bool | None
    head: int = 64
    factor: float = 32.0
    original: int = 4096
    #: Rotations within the original length at the bounds
    fast: float = 32.0
    slow: float = 1.0


class Proof(Cases):
    modules = (_MODEL, _ROTARY)
    may_lack = (_MODEL,)
    kernel = "none"
    needs = "OAIAttention"
    absent = "no gpt-oss"
    bug = (
        Case(False),
        Case(False, head=128, factor=8.0),
        Case(False, head=32, original=8192, fast=16.0, slow=2.0),
    )
    spared = (Case(True), Case(None), Case(True, head=32, original=8192, fast=16.0, slow=2.0))
    broken = {
        "bounds are rounded": (wrap.within, lambda real, low, high, dim: real(int(low), int(high) + 1, dim)),
        "one bound is rounded": (wrap.within, lambda real, low, high, dim: real(low, round(high), dim)),
        "the table is that of the next position": (wrap.table, lambda real, rotary: real(rotary).roll(-1, 0)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        rope = {
            "rope_type": "yarn", "factor": case.factor, "original_max_position_embeddings": case.original,
            "beta_fast": case.fast, "beta_slow": case.slow, **({} if case.truncate is None else {"truncate": case.truncate}),
        }  # fmt: skip
        model = {
            **DENSE, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4,
            "num_experts_per_tok": 2, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "head_dim": case.head, "max_position_embeddings": _LONGEST, "rope_theta": _BASE, "rope_scaling": rope,
        }  # fmt: skip
        backend = "triton_attn.TritonAttentionBackend"
        rotary.forget()
        with Worker(model, backend=backend, context=_CONTEXT, max_tokens=_CONTEXT) as worker:
            config = worker.config.model_config.hf_config
            config.rope_theta = _BASE  # transformers of that time has it here
            layers = [self._layer(worker, config, at) for at in range(2)]
        bounds = case.factor, case.fast, case.slow, case.original, case.truncate is not False
        turns = rotary.yarn(case.head, _BASE, *bounds)
        return combine(*(self._rotated(layer.rotary_emb, case, turns) for layer in layers))

    def _layer(self, worker: Any, config: Any, index: int) -> Any:
        make = self.engine[_MODEL].OAIAttention
        return make(config, quant_config=None, cache_config=worker.config.cache_config, prefix=f"model.layers.{index}.attn")

    def _rotated(self, rope: Any, case: Case, turns: Any) -> Observation:
        import math

        import torch

        from attnfix.patches.lab.vllm.rotary import rotated

        positions = torch.cat([torch.randint(int(case.original * case.factor), (40,)), torch.tensor([0, 1, 100])])
        query, keys = (torch.randn(len(positions), heads * case.head) for heads in (_HEADS, 2))
        out = rope.forward_native(positions, query.clone(), keys.clone())
        scale = 0.1 * math.log(case.factor) + 1
        right = [rotated(it.view(len(positions), -1, case.head), positions, turns, scale) for it in (query, keys)]
        return observe(torch.cat(out, -1), torch.cat(right, -1))
