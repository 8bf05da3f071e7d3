"""Proof of sglang.mrope-pairs: the engine's rotary embedding with M-RoPE rotates heads, by its Triton kernel.

Spared: heads that are rotated by halves, by positions with rows and without.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe
from attnfix.patches.lab.rotary import frequencies
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from .wrap import ROTARY, rotation

_MAPS = f"{ROTARY}.mrope"
_HEAD, _LONGEST, _BASE = 64, 64, 10000
#: Lanes of a head's rotated half by time, height and width
_SECTIONS = {32: [6, 5, 5], 64: [8, 12, 12]}


class Case(NamedTuple):
    """`rotary`: dimensions of a head that rotate. `heads`: of queries and of keys. `halves`: these are paired, not neighbours.
    `rows`: of the positions, 1 for those of text alone."""

    tokens: int
    heads: tuple[int, int]
    rotary: int = 32
    halves: bool = False
    rows: int = 3


class Proof(Cases):
    modules = (ROTARY, _MAPS)
    may_lack = (_MAPS,)
    kernel = "interpreted"
    bug = (Case(7, (4, 2)), Case(1, (3, 1)), Case(5, (2, 2), rotary=64))
    spared = (
        Case(7, (4, 2), halves=True),
        Case(1, (3, 1), rotary=64, halves=True),
        Case(5, (2, 2), halves=True, rows=1),
    )
    broken = {
        "the correction does nothing": (rotation, lambda real, layer: type(layer)._forward_triton.__get__(layer)),
        "text's rotation is taken": (rotation, lambda real, layer: lambda positions, *rows: real(layer)(positions[0], *rows)),
    }

    def prepare(self) -> None:
        super().prepare()
        kind = self.engine[ROTARY].MRotaryEmbedding
        if not any("triton" in name for name in dir(kind)):
            raise NoSuchPath("M-RoPE has no Triton kernel")
        construction.serve("--attention-backend", "triton", draft=False)  # what the engine's layers read of its arguments
        for one in {sys.modules[each.__module__] for each in kind.__mro__ if each.__module__.startswith(ROTARY)}:
            vars(one)["_is_cuda"] = True

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw, section = torch.Generator().manual_seed(seed), _SECTIONS[case.rotary]
        kind = self.engine[ROTARY].MRotaryEmbedding
        layer = kind(_HEAD, case.rotary, _LONGEST, _BASE, case.halves, torch.float16, mrope_section=section)
        positions = torch.randint(1, _LONGEST, (case.rows, case.tokens), generator=draw)
        q, k = (torch.randn(case.tokens, heads * _HEAD, generator=draw).half() for heads in case.heads)
        reference = torch.cat([self._exact(x, positions.expand(3, -1), case) for x in (q, k)], -1)
        rotate: Any = layer.forward_cuda if "forward_cuda" in vars(kind) else layer
        with torch.compiler.set_stance("force_eager"):
            out = rotate(positions if case.rows == 3 else positions[0], q.clone(), k.clone())
        return observe(torch.cat(out, -1), reference)

    def _exact(self, x: Any, positions: Any, case: Case) -> Any:
        """float64 [tokens, heads * d] of `positions` [3, tokens]: the first dimensions of each head rotate."""
        import torch

        axes = torch.repeat_interleave(torch.arange(3), torch.tensor(_SECTIONS[case.rotary]))
        angles = (positions[axes].T.double() * frequencies(case.rotary, _BASE))[:, None]
        cos, sin = angles.cos(), angles.sin()
        turned, rest = x.double().unflatten(-1, (-1, _HEAD)).split([case.rotary, _HEAD - case.rotary], -1)
        if case.halves:
            first, second = turned.chunk(2, -1)
            turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        else:
            first, second = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
        return torch.cat([turned, rest], -1).flatten(1)
