"""Proof of sglang.mamba2-tensor-parallel: what each rank gets of a Mamba2 layer's output projection.

Real: the layer with its constructor, and its projection, whose loader shards the weight. Played: the ranks, one after the
other, and their all-reduce. Spared: one rank, and a Mamba2 layer of Falcon-H1, whose caller adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.sglang import construction, mamba2
from attnfix.patches.lab.sglang.engine import module

from .wrap import add

_MODEL, _LINEAR = "sglang.srt.models.nemotron_h", "sglang.srt.layers.linear"
_WIDTH = 32


class Case(NamedTuple):
    ranks: int
    tokens: int
    adds: bool = True  # the layer itself, and not its caller


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", mamba2.MIXER, _LINEAR, _MODEL)
    may_lack = (mamba2.MIXER, _MODEL)
    kernel = "none"
    bug = (Case(2, 5), Case(4, 1))
    spared = (Case(1, 5), Case(2, 3, adds=False))
    broken = {"the correction does nothing": (add, lambda real, projection: None)}

    def prepare(self) -> None:
        mixers: Any = self.engine.get(mamba2.MIXER)
        if _MODEL not in self.engine or "reduce_results=False" not in Path(mixers.__file__).read_text():
            raise NoSuchPath("no Mamba2 layer leaves the sum over ranks to Nemotron-H")
        super().prepare()
        vars(self.engine[_MODEL])["RMSNorm"] = lambda *_, **__: None  # it comes before the layer
        construction.serve("--attention-backend", "triton", draft=False)
        sizes = {**mamba2.NEMOTRON, "mamba_num_heads": 4, "n_groups": 4, "mamba_n_groups": 4, "rms_norm_eps": 1e-5}
        self.config = module("configs.nemotron_h").NemotronHConfig(**sizes)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        group = module("distributed.parallel_state").get_tp_group()
        projections = []
        for rank in range(case.ranks):
            with replaced(group, "world_size", case.ranks), replaced(group, "rank_in_group", rank):
                projections.append(self._projection(case))
        torch.manual_seed(seed)
        inner = sum(one.weight.shape[1] for one in projections)
        weight, rows = torch.randn(_WIDTH, inner) / inner**0.5, torch.randn(case.tokens, inner)
        for one in projections:
            one.weight.weight_loader(one.weight, weight)
        ranks = list(zip(projections, rows.chunk(case.ranks, -1)))

        def outs(all_reduce: Any) -> list[Any]:
            with torch.no_grad(), replaced(group, "all_reduce", all_reduce):
                return [one(own)[0] for one, own in ranks]

        parts = outs(lambda part: part)
        total = sum(parts)
        seen = outs(lambda part: total) if case.adds else [total]
        return combine(*(observe(one, rows.double() @ weight.double().T) for one in seen))

    def _projection(self, case: Case) -> Any:
        config = self.config
        if case.adds:
            return self.engine[_MODEL].NemotronHMambaDecoderLayer(config, 0).mixer.out_proj
        kind = self.engine[mamba2.MIXER].MambaMixer2
        return kind(config.mamba2_cache_params, config.hidden_size, True, False, config.mamba_n_groups).out_proj
