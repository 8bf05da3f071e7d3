"""Proof of vllm.ministral3-query-scale: queries that a layer of Ministral 3 hands to attention.

Real: a config.json as transformers reads it, and the decoder layer with its rotary embedding. Stood in for: the attention
kernel. Spared: servers whose requests stay within the original length, and checkpoints whose scaling the engine reads or that
have none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_MODEL, _CONFIG = "vllm.model_executor.models.mistral", "vllm.config.vllm"
_HEADS, _HEAD, _BASE = 8, 64, 1e6


class Case(NamedTuple):
    beta: float = 0.1
    original: int = 256
    factor: float = 16.0
    #: Tokens of a request
    context: int = 4096
    #: What config.json has beside it
    more: dict[str, Any] = {}


_READ = {"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 256}}


class Proof(Cases):
    modules = (_MODEL, _CONFIG)
    may_lack = modules
    measure = "relative error of queries, infinite where compiled code is cached as that of others"
    needs = "MistralAttention"
    absent = "no attention of Mistral's"
    bug = (Case(), Case(beta=0.25, original=400, factor=4.0, context=1600), Case(beta=2.0, context=257))
    spared = (Case(context=256), Case(more=_READ), Case(beta=0.0), Case(original=400, context=400))
    broken = {
        "queries stay": (wrap.scaling, lambda real, beta, original: (0.0, original)),
        "the scaling begins a position late": (wrap.scaling, lambda real, beta, original: (beta, original + 1)),
        "code that was compiled without is taken": (wrap.cache_key, lambda real, stock: stock),
    }
    context: int | None = None

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        case = case._replace(context=min(self.context or case.context, case.context))
        rope = {
            "rope_type": "yarn", "rope_theta": _BASE, "factor": case.factor, "beta_fast": 32.0, "beta_slow": 1.0,
            "original_max_position_embeddings": case.original, "llama_4_scaling_beta": case.beta,
        }  # fmt: skip
        model = {
            **DENSE, "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", "rope_parameters": rope,
            "max_position_embeddings": int(case.original * case.factor), **case.more,
        }  # fmt: skip
        wrap._process.clear()  # what another case has left of its model
        rotary.forget()
        backend = "flash_attn.FlashAttentionBackend"
        with Worker(model, backend=backend, context=case.context, max_tokens=case.context) as worker:
            layer = self.engine[_MODEL].MistralDecoderLayer(worker.config, prefix="model.layers.0").self_attn
            key = worker.config.compute_hash()
            wrap._process.clear()  # as it is where no layer was corrected
            if layer.do_llama_4_scaling and not case.more and worker.config.compute_hash() == key:
                return Observation(math.inf, "code is cached as that of another model")
            return self._queries(layer, case)

    def _queries(self, layer: Any, case: Case) -> Observation:
        import torch

        from attnfix.patches.lab.vllm.rotary import rotated, yarn

        positions = torch.cat([torch.randint(case.context, (30,)), torch.tensor([0, case.original - 1, case.context - 1])])
        rows = torch.randn(len(positions), 3 * _HEADS * _HEAD // 2)  # [tokens, 8 heads of queries and two of keys and values]
        seen = {}

        class Attention(torch.nn.Module):
            def forward(self, query: Any, key: Any, value: Any) -> Any:
                seen["query"] = query.clone()
                return query

        layer.attn, layer.qkv_proj, layer.o_proj = Attention(), _as_it_is(rows), _as_it_is(rows)
        with torch.no_grad():
            layer(positions, rows)
        turns = yarn(_HEAD, _BASE, case.factor, 32.0, 1.0, case.original, True)
        plain = rows[:, : _HEADS * _HEAD].view(len(positions), _HEADS, _HEAD)
        right = rotated(plain, positions, turns, 0.1 * math.log(case.factor) + 1)
        scale = 1 + case.beta * (1 + (positions // case.original).double()).log()
        return observe(seen["query"], right * scale[:, None])


def _as_it_is(rows: Any) -> Any:
    """A projection that gives these rows."""
    import torch

    class Projection(torch.nn.Module):
        def forward(self, *_: Any) -> Any:
            return rows.clone(), None

    return Projection()
