"""Proof of vllm.gdn-token-order: short prompts beside verified drafts, whose tokens the builder parts.

Real: all of the lab's. Emulated: `torch.argsort` of up to 32 keys as on a GPU, by the same bitonic network: of 400 draws on an
H200, all had its order. Longer keys, and those with `stable`, keep their order there, too. Spared: drafts alone, others alone.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.proof import Observation, replaced
from attnfix.patches.lab.vllm.gated_delta import BUILDER, Case, GatedDelta, case, step, verify

from . import wrap

_LONGEST = 32
_TWO = step(a=20, b=9)


class Proof(GatedDelta):
    modules = (BUILDER,)
    may_lack = (BUILDER,)
    needs = "GDNAttentionMetadataBuilder.build: argsort"
    absent = "Gated DeltaNet's builder sorts no tokens"
    #: Behind drafts, before them, several of both, and as many tokens as an unordered sort takes
    bug = (
        case(_TWO, step(a=verify(), b=verify(), c=7), step(a=verify(), b=verify(), c=verify())),
        case(_TWO, step(c=5, a=verify(), d=3, b=verify(kept=2)), step(b=verify(), d=verify(), a=verify()), drafts=2),
        case(step(a=6), step(a=verify(), b=2), step(a=verify(), b=verify()), drafts=1),
        case(_TWO, step(a=verify(), b=verify(1), c=18, d=8), step(c=verify(), d=verify())),
    )
    spared = (
        case(_TWO, step(a=verify(), b=verify()), step(c=7, d=4), step(a=verify(), b=verify(0), c=verify())),
        case(step(a=6, b=3), step(a=4, c=9), drafts=1),
    )
    broken = {
        "the correction does nothing": (wrap.parted, lambda real, argsort, verified: argsort(verified)),
        "the order is reversed": (wrap.parted, lambda real, argsort, verified: real(argsort, verified.flip(0))),
        "drafts come first": (wrap.parted, lambda real, argsort, verified: real(argsort, ~verified)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        stock = torch.argsort

        def argsort(keys: Any, *args: Any, stable: bool = False, **more: Any) -> Any:
            if stable or len(keys) > _LONGEST:
                return stock(keys, *args, stable=stable, **more)
            return torch.tensor(bitonic(keys.tolist()))

        with replaced(torch, "argsort", argsort):
            return super().run(case, seed)


def bitonic(keys: list[bool]) -> list[int]:
    """Indices that sort the keys, as PyTorch's kernel for few keys does: it swaps what is equal."""
    rows: list[tuple[bool, bool, int]] = [(False, key, at) for at, key in enumerate(keys)]
    rows += [(True, False, at) for at in range(len(keys), _LONGEST)]  # places without a key go to the end

    def merge(size: int, last: bool) -> None:
        stride = size // 2
        while stride:
            for thread in range(_LONGEST // 2):
                at = 2 * thread - (thread & (stride - 1))
                (none, key, _), (other_none, other_key, _) = first, second = rows[at], rows[at + stride]
                ordered = (key < other_key and not none) or other_none
                if ordered == (not last and bool(thread & (size // 2))):
                    rows[at], rows[at + stride] = second, first
            stride //= 2

    size = 2
    while size < _LONGEST:
        merge(size, last=False)
        size *= 2
    merge(_LONGEST, last=True)
    return [at for _, _, at in rows[: len(keys)]]
