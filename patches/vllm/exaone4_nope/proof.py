"""Proof of vllm.exaone4-nope: queries and keys that a layer hands to attention, and the key that compiled code is cached by.

Real: a config.json as transformers reads it, and the decoder layer with its rotary embedding. Stood in for: the projections.
Spared: layers with a window, and a model that has none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_MODEL = "vllm.model_executor.models.exaone4"
_HEADS, _KV_HEADS, _HEAD, _BASE, _LENGTH = 8, 2, 64, 1e6, 2048
_WINDOW, _FULL = "sliding_attention", "full_attention"


class Case(NamedTuple):
    layer: int = 3
    #: Of the four layers
    kinds: tuple[str, ...] = (_WINDOW, _WINDOW, _WINDOW, _FULL)


_ALL_FULL, _ALTERNATE = (_FULL,) * 4, (_FULL, _WINDOW) * 2


class Proof(Cases):
    modules = (_MODEL,)
    measure = "relative error of queries and keys, infinite where compiled code is cached as that of stock"
    needs = "Exaone4Attention.__init__: layer_types"
    absent = "a pattern says which layers rotate"
    bug = (Case(), Case(0, _ALTERNATE))
    spared = (Case(1), Case(3, _ALTERNATE), Case(kinds=_ALL_FULL), Case(0, _ALL_FULL))
    broken = {
        "the correction does nothing": (wrap.rotates, lambda real, kinds: True),
        "code that was compiled without is taken": (wrap.marked, lambda real: ("use_cache", True)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.rotary import frequencies, rotated
        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker
        from attnfix.patches.lab.vllm.layers import handed_over

        torch.manual_seed(seed)
        rotary.forget()
        model = {
            **DENSE, "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "layer_types": list(case.kinds),
            "sliding_window": None if case.kinds == _ALL_FULL else 512, "sliding_window_pattern": 4, "rope_theta": _BASE,
        }  # fmt: skip
        with Worker(model, backend="flash_attn.FlashAttentionBackend", context=_LENGTH, max_tokens=_LENGTH) as worker:
            server, config = worker.config, worker.config.model_config.hf_config
            stock, rotates = server.compute_hash(), case.kinds[case.layer] == _WINDOW or case.kinds == _ALL_FULL
            made = self.engine[_MODEL].Exaone4DecoderLayer(config, server.cache_config, None, f"model.layers.{case.layer}")
            layer = made.self_attn
            if not rotates and getattr(layer, "apply_all_layers", None) is False and server.compute_hash() == stock:
                return Observation(math.inf, "code is cached as that of stock")
        positions = torch.cat([torch.randint(_LENGTH, (30,)), torch.tensor([0, _LENGTH - 1])])
        rows = torch.randn(len(positions), (_HEADS + 2 * _KV_HEADS) * _HEAD)
        query, keys, _ = handed_over(layer, rows, positions, rows)
        right = []
        for part, heads in zip(
            rows.double().split([_HEADS * _HEAD, _KV_HEADS * _HEAD, _KV_HEADS * _HEAD], 1), (_HEADS, _KV_HEADS)
        ):
            part = part.view(-1, heads, _HEAD)
            part = part / (part.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt()
            right.append(rotated(part, positions, frequencies(_HEAD, _BASE) * rotates))
        return observe(torch.cat([query, keys], -1), torch.cat(right, -1))
