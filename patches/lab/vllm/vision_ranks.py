"""A layer of a vision tower over several ranks, by the engine's own constructor, from one checkpoint: 0.11.1-0.33.0.

Real: the layer, its weights as its own loaders split them, and its code up to attention. Emulated: the group of ranks, which is
one process, and attention at its entry.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, combine, observe

from . import kernels
from .construction import DENSE, Alone, Worker

#: Of the layer: its heads, the width of each, and tokens of an image
HEADS, WIDTH, TOKENS = 8, 16, 6


class Tower(NamedTuple):
    """ranks: of a server; whole: whether each has a tower of its own, as with `--mm-encoder-tp-mode data`."""

    ranks: int = 2
    whole: bool = False
    bias: bool = True


class _Group(Alone):
    """The ranks are run in a row: what the others bring is kept from a run before, in which all bring what they have."""

    def __init__(self, size: int, rank: int, brought: list[Any]):
        super().__init__(size, rank)
        self.brought = brought

    def all_gather(self, local: Any, dim: int = -1) -> Any:
        import torch

        self.brought[self.rank_in_group] = local
        return torch.cat([local if one is None else one for one in self.brought], dim)


class Towers(Cases):
    """Base of the proofs. `layer` makes the layer, whose fused weights are `qkv`; `qkv_of` runs it up to attention, and gives
    query, keys and values of a rank's heads [tokens in any shape, heads, width]."""

    kernel = "none"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def layer(self, case: Tower, dim: int, multimodal: Any) -> Any:
        """multimodal: the config that says whether each rank has a tower of its own."""
        raise NotImplementedError

    def qkv_of(self, layer: Any, hidden: Any) -> tuple[Any, Any, Any]:
        raise NotImplementedError

    def run(self, case: Tower, seed: int) -> Observation:
        import torch

        dim, draw = HEADS * WIDTH, torch.Generator().manual_seed(seed)
        weight, bias, hidden = (torch.randn(shape, generator=draw) for shape in ((3 * dim, dim), (3 * dim,), (TOKENS, dim)))
        reference = (hidden.double() @ weight.double().T + (bias.double() if case.bias else 0)).view(TOKENS, 3, HEADS, WIDTH)
        brought: list[Any] = [None] * case.ranks
        seen = []
        for rank in (*range(case.ranks), *range(case.ranks)):  # at first, others have brought nothing yet
            worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", dtype="float32", tp=case.ranks, rank=rank)
            worker._groups["_TP"] = _Group(case.ranks, rank, brought)
            multimodal = SimpleNamespace(mm_encoder_tp_mode="data" if case.whole else "weights")
            worker.config.model_config.multimodal_config = multimodal
            with worker:
                layer = self.layer(case, dim, multimodal)
                for name, full in (("weight", weight), ("bias", bias)):
                    if (parameter := getattr(layer.qkv, name, None)) is not None:
                        parameter.weight_loader(parameter, full)
                parts = [part.detach().reshape(TOKENS, -1, WIDTH) for part in self.qkv_of(layer, hidden)]
            own = reference if case.whole else reference.chunk(case.ranks, 2)[rank]
            seen.append(observe(torch.stack(parts, 1), own))
        return combine(*seen[case.ranks :])
