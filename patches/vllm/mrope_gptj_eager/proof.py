"""Proof of vllm.mrope-gptj-eager: the engine's rotary embedding with M-RoPE rotates heads, as its server is launched.

Real: the embedding, and its Triton kernel, interpreted. Spared: heads that are rotated by halves, and models that are compiled.
"""

from __future__ import annotations

import math
from inspect import signature
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.rotary import frequencies

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_MROPE, _PLATFORM = f"{_ROTARY}.mrope", "vllm.platforms"
_HEAD, _LONGEST, _BASE = 64, 64, 10000.0
#: Lanes of a head's rotated half by time, height and width
_SECTIONS = {32: [6, 5, 5], 64: [8, 12, 12]}
#: Releases that leave the kernel to compiled models
_BY_TORCH = "no MRotaryEmbedding.forward: use_triton"


class Case(NamedTuple):
    """`rotary`: dimensions of a head that rotate. `heads`: of queries and of keys. `halves`: these are paired, not neighbours.
    `eager`: nothing is compiled; `ops`: custom ops that the launch names."""

    tokens: int
    heads: tuple[int, int]
    rotary: int = 32
    halves: bool = False
    eager: bool = True
    ops: tuple[str, ...] = ()
    where: str = ""


class Proof(Cases):
    modules = (_MROPE, _ROTARY, _PLATFORM, "vllm.config")
    may_lack = (_MROPE, _ROTARY)
    kernel = "interpreted"
    measure = "relative error of queries and keys, infinite where compiled code is cached as that of stock"
    needs = "MRotaryEmbedding.forward_cuda: triton_mrope"
    absent = "M-RoPE has no Triton kernel"
    bug = (
        Case(7, (4, 2)),
        Case(1, (3, 1), eager=False, ops=("+rotary_embedding",)),
        Case(5, (2, 2), rotary=64),
    )
    spared = (
        Case(7, (4, 2), halves=True),
        Case(3, (3, 1), rotary=64, halves=True, eager=False, ops=("all",)),
        Case(5, (2, 2), eager=False, ops=("none",), where=_BY_TORCH),
    )
    broken = {
        "the correction does nothing": [(wrap.rotation, lambda real, layer: layer.forward_cuda), (wrap, "ASKED", "unasked")],
        "text's rotation is taken": (wrap.rotation, lambda real, layer: lambda at, *rows: real(layer)(at[0], *rows)),
        "code that was compiled without is taken": (wrap.cache_key, lambda real, stock: stock),
    }
    broken_where = {"text's rotation is taken": _BY_TORCH}

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        draw, platform = torch.Generator().manual_seed(seed), type(self.engine[_PLATFORM].current_platform)
        wrap._code.is_changed = False  # what another case has left
        rotary.forget()
        worker = Worker(
            DENSE, backend="flash_attn.FlashAttentionBackend", dtype="float16", model_config={"enforce_eager": case.eager},
            compilation={"custom_ops": list(case.ops)},
        )  # fmt: skip
        with worker, replaced(platform, "is_cuda_alike", classmethod(lambda cls: True)):
            layer, key = self._layer(case), worker.config.compute_hash()
            changed, wrap._code.is_changed = wrap._code.is_changed, False
            if changed and worker.config.compute_hash() == key:
                return Observation(math.inf, "code is cached as that of stock")
        positions = torch.randint(1, _LONGEST, (3, case.tokens), generator=draw)
        q, k = (torch.randn(case.tokens, heads * _HEAD, generator=draw).half() for heads in case.heads)
        reference = torch.cat([_exact(x, positions, case) for x in (q, k)], -1)
        return observe(torch.cat(layer(positions, q.clone(), k.clone()), -1), reference)

    def _layer(self, case: Case) -> Any:
        """As a model's layer asks for it; its settings have two forms."""
        get_rope, share = self.engine[_ROTARY].get_rope, case.rotary / _HEAD
        settings = {"rope_type": "default", "mrope_section": _SECTIONS[case.rotary]}
        given = {
            "head_size": _HEAD, "rotary_dim": _HEAD, "max_position": _LONGEST, "base": _BASE, "is_neox_style": case.halves,
            "rope_scaling": settings, "partial_rotary_factor": share,
            "rope_parameters": {**settings, "rope_theta": _BASE, "partial_rotary_factor": share},
        }  # fmt: skip
        return get_rope(**{name: value for name, value in given.items() if name in signature(get_rope).parameters})


def _exact(x: Any, positions: Any, case: Case) -> Any:
    """float64 [tokens, heads * d] of `positions` [3, tokens]: the first dimensions of each head rotate."""
    import torch

    axes = torch.repeat_interleave(torch.arange(3), torch.tensor(_SECTIONS[case.rotary]))
    angles = (positions[axes].T.double() * frequencies(case.rotary, _BASE))[:, None]
    turned, rest = x.double().unflatten(-1, (-1, _HEAD)).split([case.rotary, _HEAD - case.rotary], -1)
    first, second = turned.chunk(2, -1) if case.halves else (turned[..., ::2], turned[..., 1::2])
    parts = [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()]
    turned = torch.cat(parts, -1) if case.halves else torch.stack(parts, -1).flatten(-2)
    return torch.cat([turned, rest], -1).flatten(1)
