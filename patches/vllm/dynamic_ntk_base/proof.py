"""Proof of vllm.dynamic-ntk-base: queries and keys that the rotary embedding turns, on a server of short requests.

Real: `get_rope`, its cache, the embedding and its table. Spared: servers of requests of the full length, which the engine's
table is for, settings that scale nothing, and other types of RoPE.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_BASE, _TRAINED = 10000.0, 1024


class Case(NamedTuple):
    #: Of the longest request
    length: int = _TRAINED
    factor: float = 2.0
    head: int = 64
    base: float = _BASE
    rope: dict[str, Any] = {}
    where: str = ""


#: From 0.22.0 on, the table ends at the trained length
_WHOLE = f"no {_ROTARY}:get_rope: max_trained_positions"


class Proof(Cases):
    modules = (_ROTARY,)
    kernel = "none"
    bug = (Case(), Case(length=300, factor=3.0, head=128), Case(base=5e6, head=128, factor=4.0), Case(factor=1.5))
    spared = (
        Case(length=2 * _TRAINED, where=_WHOLE),
        Case(length=3 * _TRAINED, factor=3.0, head=128, where=_WHOLE),
        Case(factor=1.0),
        Case(rope={"alpha": 8.0}),
        Case(rope={"rope_type": "linear"}),
    )
    broken = {
        "the base stays scaled": (wrap.factor, lambda real: 2.0),
        "the base is scaled the other way": (wrap.factor, lambda real: 0.5),
        "rows are those of the next position": (wrap.table, lambda real, rotary: real(rotary).roll(-1, 0)),
    }
    scaled = True

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        rope = {"rope_type": "dynamic", "factor": case.factor, **case.rope} if self.scaled else {"rope_type": "default"}
        with Worker(DENSE, backend="flash_attn.FlashAttentionBackend", context=case.length, max_tokens=4096):
            made = rotary.made(case.head, _TRAINED, case.base, **rope)
        positions = torch.cat([torch.randint(case.length, (40,)), torch.tensor([0, 1, case.length - 1])])
        query, keys = (torch.randn(len(positions), heads * case.head) for heads in (8, 2))
        out = getattr(made, "forward_native", made.forward)(positions, query.clone(), keys.clone())
        turns = self._frequencies(case)
        right = [rotary.rotated(it.view(len(positions), -1, case.head), positions, turns) for it in (query, keys)]
        return observe(torch.cat(out, -1), torch.cat(right, -1))

    def _frequencies(self, case: Case) -> Any:
        from attnfix.patches.lab.rotary import frequencies

        if case.rope.get("rope_type") == "linear":
            return frequencies(case.head, case.base) / case.factor
        beyond = max(case.length, _TRAINED) / _TRAINED
        scale = case.rope.get("alpha", case.factor * beyond - (case.factor - 1))
        return frequencies(case.head, case.base * scale ** (case.head / (case.head - 2)))
