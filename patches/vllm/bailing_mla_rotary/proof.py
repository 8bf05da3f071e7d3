"""Proof of vllm.bailing-mla-rotary: queries and keys that a layer of MLA rotates, and what compiled code is cached by.

Real: the layer and its rotary embedding. Stood in for: the config's class, which is DeepSeek's, with the factor of Ling.
Spared: checkpoints without the factor.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_MODEL = "vllm.model_executor.models.bailing_moe_linear"
#: Of MLA: its heads, and the dimensions of each that are rotated
_HEADS, _DIM = 4, 64
_BASE, _LENGTH = 6e6, 2048


class Case(NamedTuple):
    factor: float | None = 0.5
    q_lora_rank: int | None = 128


class Proof(Cases):
    modules = (_MODEL, "vllm.config.vllm")
    may_lack = modules
    measure = "relative error of queries and keys, infinite where compiled code is cached as that of stock"
    needs = "BailingMoeV25MLAAttention"
    absent = "no Ling with layers of MLA"
    bug = (Case(), Case(0.25), Case(q_lora_rank=None))
    spared = (Case(1.0), Case(None), Case(1.0, None))
    broken = {
        "the factor stays": (wrap.in_full, lambda real, rope: rope),
        "the factor is another one": (wrap.in_full, lambda real, rope: {**rope, "partial_rotary_factor": 0.75}),
        "code that was compiled without is taken": (wrap.cache_key, lambda real, stock: stock),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.rotary import frequencies, rotated_in_pairs
        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import MLA, Worker

        torch.manual_seed(seed)
        rotary.forget()
        wrap._code.is_changed = False  # what another case has left
        model = {
            **MLA, "num_attention_heads": _HEADS, "num_key_value_heads": _HEADS, "qk_rope_head_dim": _DIM,
            "q_lora_rank": case.q_lora_rank, "rope_theta": _BASE,
        }  # fmt: skip
        with Worker(model, backend="mla.triton_mla.TritonMLABackend", context=_LENGTH, max_tokens=_LENGTH) as worker:
            server, config = worker.config, worker.config.model_config.hf_config
            if case.factor:
                config.partial_rotary_factor = case.factor
            cls = self.engine[_MODEL].BailingMoeV25MLAAttention
            layer = cls(config, layer_id=3, prefix="model.layers.3.attention", cache_config=server.cache_config)
            key, corrected = server.compute_hash(), wrap._code.is_changed
            wrap._code.is_changed = False  # as it is where no layer was corrected
            if corrected and server.compute_hash() == key:
                return Observation(math.inf, "code is cached as that of stock")
        positions = torch.cat([torch.randint(_LENGTH, (30,)), torch.tensor([0, _LENGTH - 1])])
        query, keys = torch.randn(len(positions), _HEADS, _DIM), torch.randn(len(positions), 1, _DIM)
        turns = frequencies(_DIM, _BASE)
        right = [rotated_in_pairs(part, positions, turns) for part in (query, keys)]
        out: Any = layer.rotary_emb.forward_native(positions, query.clone(), keys.clone())
        return observe(torch.cat([part.flatten(1) for part in out], -1), torch.cat(right, -1))
