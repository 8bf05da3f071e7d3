"""Proof of vllm.yarn-attention-factor: queries and keys that the rotary embedding turns, made of a checkpoint's settings.

Real: `get_rope`, its cache, the embedding and its table. Spared: settings that ask for the engine's own factor or bring it by
a setting that the engine reads, and those that Mistral Medium 3.5 had by mistake.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_BASE = 150000.0


class Case(NamedTuple):
    rope: dict[str, Any]
    #: Of queries and of keys
    scale: float
    head: int = 64
    factor: float = 16.0
    original: int = 256
    #: Whether it is the embedding of images, too
    mrope: bool = False
    where: str = ""


def _usual(factor: float = 16.0, times: float = 1.0) -> float:
    return 0.1 * times * math.log(factor) + 1


_BOTH = {"mscale": 1.0, "mscale_all_dim": 1.0}
#: Of Ministral 3
_PAIR = {**_BOTH, "llama_4_scaling_beta": 0.1}
#: Where it can be made: 0.12.0 raises
_MROPE = f"{_ROTARY}.mrope:MRotaryEmbedding.__init__: truncate or {_ROTARY}:get_rope: rope_scaling"
#: From 0.30.0 on, the engine takes both also where a checkpoint has them by mistake
_DROPS = f"no {_ROTARY}.yarn_scaling_rope:YaRNScalingRotaryEmbedding.__init__: attention_factor"
_UNSCALED = f"{_ROTARY}.yarn_scaling_rope:YaRNScalingRotaryEmbedding.__init__: apply_yarn_scaling"


class Proof(Cases):
    modules = (_ROTARY, f"{_ROTARY}.yarn_scaling_rope", f"{_ROTARY}.mrope")
    may_lack = modules[1:]
    kernel = "none"
    bug = (
        Case(_PAIR, 1.0),
        Case({"attention_factor": 1.0}, 1.0, head=128, factor=64.0),
        Case({**_PAIR, "mscale": 0.5}, _usual(times=0.5) / _usual(), original=512),
        Case({**_PAIR, "attention_factor": 1.1, "attn_factor": 1.0}, 1.1, factor=8.0),
        Case(_PAIR, 1.0, head=128, mrope=True, where=_MROPE),
    )
    spared = (
        Case({}, _usual()),
        Case({}, _usual(), head=128, mrope=True, where=_MROPE),
        Case({"attention_factor": _usual(8.0)}, _usual(8.0), factor=8.0),
        Case({"mscale_all_dim": 1.0}, _usual()),
        Case({"mscale": 1.0, "mscale_all_dim": 0}, _usual()),
        Case({**_BOTH, "llama_4_scaling_beta": 0}, _usual(64.0), head=128, factor=64.0, where=_DROPS),
        Case({**_PAIR, "attn_factor": 1 / _usual()}, 1.0),
        Case({**_PAIR, "apply_yarn_scaling": False}, 1.0, where=_UNSCALED),
        Case(_PAIR, 1.0, factor=1.0),
    )
    broken = {
        "the correction does nothing": (wrap.scale, lambda real, asked: _usual()),
        "one of both settings is taken as 1": (wrap.usual_scale, lambda real, factor, *times: real(factor)),
        "the factor is another one": (wrap.scale, lambda real, asked: 1.2 * real(asked)),
    }
    #: Whether settings name the factor as the engine reads it
    read = False

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        longest = int(case.original * case.factor)
        rope = {
            "rope_type": "yarn", "factor": case.factor, "original_max_position_embeddings": case.original,
            **({"mrope_section": [case.head // 8, case.head // 8, case.head // 4]} if case.mrope else {}), **case.rope,
            **({"attn_factor": case.scale / _usual(case.factor)} if self.read else {}),
        }  # fmt: skip
        with Worker(DENSE, backend="flash_attn.FlashAttentionBackend", context=4096, max_tokens=4096):
            made = rotary.made(case.head, longest, _BASE, **rope)
        # The engine's embedding of images finds its bounds for four times the length
        bounds = case.original * (4 if hasattr(made, "mrope_section") else 1)
        turns = rotary.yarn(case.head, _BASE, case.factor, 32.0, 1.0, bounds, True)
        positions = torch.cat([torch.randint(longest, (40,)), torch.tensor([0, 1, longest - 1])])
        query, keys = (torch.randn(len(positions), heads * case.head) for heads in (8, 2))
        right = [rotary.rotated(it.view(len(positions), -1, case.head), positions, turns, case.scale) for it in (query, keys)]
        out = getattr(made, "forward_native", made.forward)(positions, query.clone(), keys.clone())
        return observe(torch.cat(out, -1), torch.cat(right, -1))
