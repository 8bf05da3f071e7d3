"""Proof of vllm.longrope-switch: steps in a row by the engine's own rotary embedding, which it makes for a server's length.

Keys and queries of all steps are compared with rotations by one table, the one that the server's length asks for. Spared:
servers whose length is the original one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, combine, observe

from . import wrap

_ROTARY = "vllm.model_executor.layers.rotary_embedding"
_ENVS = "vllm.envs"
_ORIGINAL, _LONGEST, _DIM = 128, 1024, 64
#: First position and tokens of a request in a step
_Tokens = tuple[int, int]


class Case(NamedTuple):
    length: int
    steps: tuple[tuple[_Tokens, ...], ...]
    #: Scales of both tables, where config.json has them
    scales: tuple[float, float] | None = None


#: A prompt, a decode beside a long prompt, a decode alone; then one passes the original length, which is a position of its own
_BESIDE = (((0, 40),), ((40, 1), (0, 300)), ((41, 1),))
_PASSES = (((0, 120),), *(((at, 1),) for at in range(120, 132)))
_CHUNKS = (((0, 100), (0, 20)), ((100, 100), (20, 1)), ((200, 100), (21, 1)))
_WITHIN = (((0, 40),), ((40, 1), (0, 128)), ((41, 1),))


class Proof(Cases):
    modules = (_ROTARY, _ENVS)
    kernel = "none"
    needs = "Phi3LongRoPEScaledRotaryEmbedding"
    bug = (
        Case(_LONGEST, _BESIDE),
        Case(_LONGEST, _PASSES),
        Case(300, _CHUNKS),
        Case(_ORIGINAL + 1, _PASSES[:-3], (1.1, 1.3)),
    )
    spared = (Case(_ORIGINAL, _WITHIN), Case(_ORIGINAL, _WITHIN, (1.1, 1.3)), Case(64, _BESIDE[:1]))
    broken = {
        "the short table is in front": (wrap.long_rows, lambda real, table, first: table),
        "rows are those of the next position": (wrap.long_rows, lambda real, table, first: real(table, first).roll(-1, 0)),
        "the long table begins too late": (wrap.long_rows, lambda real, table, first: real(table, 2 * first)),
        "code that was compiled for both tables is taken": (wrap.cache_key, lambda real, stock: stock),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker

        torch.manual_seed(seed)
        factors = [[1.0 + 0.01 * at for at in range(_DIM // 2)], [1.0 + 0.9 * at for at in range(_DIM // 2)]]
        scales = dict(zip(("short_mscale", "long_mscale"), case.scales or ()))
        wrap._process.clear()  # what another case has left of its model
        backend = "flash_attn.FlashAttentionBackend"
        with Worker(DENSE, backend=backend, context=case.length, max_tokens=_LONGEST):
            key = self._key()
            rope = rotary.made(
                _DIM, _LONGEST, 10000.0, rope_type="longrope", short_factor=factors[0], long_factor=factors[1],
                original_max_position_embeddings=_ORIGINAL, **scales,
            )  # fmt: skip
            changed = len(rope.long_short_cos_sin_cache) != _ORIGINAL + _LONGEST
            if changed and self._key() == key:
                return Observation(math.inf, "code is cached as that of both tables")
            is_long = case.length > _ORIGINAL
            scale = case.scales[is_long] if case.scales else math.sqrt(1 + math.log(_LONGEST / _ORIGINAL) / math.log(_ORIGINAL))
            turns = rotary.frequencies(_DIM) / torch.tensor(factors[is_long], dtype=torch.float64)
            return combine(*(self._step(rope, step, turns, scale) for step in case.steps))

    def _key(self) -> str | None:
        """What the engine caches compiled code by, beside its config: in releases with the bug."""
        return self.engine[_ENVS].compute_hash() if hasattr(self.engine[_ENVS], "compute_hash") else None

    def _step(self, rope: Any, step: tuple[_Tokens, ...], turns: Any, scale: float) -> Observation:
        import torch

        from attnfix.patches.lab.vllm.rotary import rotated

        positions = torch.cat([torch.arange(first, first + count) for first, count in step])
        query, keys = (torch.randn(len(positions), heads * _DIM, dtype=torch.bfloat16) for heads in (4, 2))
        out = getattr(rope, "forward_native", rope.forward)(positions, query.clone(), keys.clone())
        right = [rotated(it.view(len(positions), -1, _DIM), positions, turns, scale) for it in (query, keys)]
        return observe(torch.cat(out, -1), torch.cat(right, -1))
