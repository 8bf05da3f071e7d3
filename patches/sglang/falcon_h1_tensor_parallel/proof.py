"""Proof of sglang.falcon-h1-tensor-parallel: what the ranks of Falcon-H1 add up, behind attention and a Mamba2 layer.

Real: the layer with its constructor, and the projection of Mamba2, whose loader shards the weight. Played: the ranks, one after
the other, attention's part, and both all-reduces. Spared: one rank.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe, replaced
from attnfix.patches.lab.sglang import construction, mamba2
from attnfix.patches.lab.sglang.engine import accepted, module

from .wrap import keep

_MODEL, _LINEAR = "sglang.srt.models.falcon_h1", "sglang.srt.layers.linear"
_WIDTH = 32
_SIZES = {
    "hidden_size": _WIDTH, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 8, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 4, "mamba_d_state": 16,
    "mamba_chunk_size": 16, "vocab_size": 64,
}  # fmt: skip


class Case(NamedTuple):
    ranks: int
    tokens: int


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", mamba2.MIXER, _LINEAR, _MODEL)
    may_lack = (mamba2.MIXER, _MODEL)
    kernel = "none"
    bug = (Case(2, 5), Case(4, 1))
    spared = (Case(1, 5), Case(1, 1))
    broken = {"the correction does nothing": (keep, lambda real, projection: None)}

    def prepare(self) -> None:
        mixers: Any = self.engine.get(mamba2.MIXER)
        if _MODEL not in self.engine or "reduce_results=False" in Path(mixers.__file__).read_text():
            raise NoSuchPath("no Mamba2 layer adds the ranks' parts before Falcon-H1 does")
        if accepted(mixers.MambaMixer2, {"reduce_results": False}):
            raise NoSuchPath("models say which of their Mamba2 layers add")
        super().prepare()
        vars(self.engine[_MODEL]).update(dict.fromkeys(("RMSNorm", "LayerCommunicator", "FalconH1MLP", "get_rope"), _nothing))
        construction.serve("--attention-backend", "triton", draft=False)
        self.config = module("configs.falcon_h1").FalconH1Config(**_SIZES)
        self.config.rope_parameters = {"rope_theta": 10000.0, "rope_type": "default"}

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        group = module("distributed.parallel_state").get_tp_group()
        projections = [self._projection(group, rank, case.ranks) for rank in range(case.ranks)]
        torch.manual_seed(seed)
        inner = sum(one.weight.shape[1] for one in projections)
        weight, rows = torch.randn(_WIDTH, inner) / inner**0.5, torch.randn(case.tokens, inner)
        attention = torch.randn(case.ranks, case.tokens, _WIDTH)
        for one in projections:
            one.weight.weight_loader(one.weight, weight)
        ranks = list(zip(projections, rows.chunk(case.ranks, -1), strict=True))

        def outs(all_reduce: Any) -> Any:
            with torch.no_grad(), replaced(group, "all_reduce", all_reduce):
                return torch.stack([one(own)[0] for one, own in ranks])

        total = outs(lambda part: part).sum(0)
        added = (attention + outs(lambda part: total)).sum(0)
        return observe(added, attention.double().sum(0) + rows.double() @ weight.double().T)

    def _projection(self, group: Any, rank: int, ranks: int) -> Any:
        """That of a layer's Mamba2, made on this rank of so many."""
        context = module("runtime_context")
        with ExitStack() as stack:
            stack.enter_context(replaced(group, "world_size", ranks))
            stack.enter_context(replaced(group, "rank_in_group", rank))
            if hasattr(self.engine[_MODEL], "get_attention_tp_size"):
                stack.enter_context(replaced(self.engine[_MODEL], "get_attention_tp_size", lambda: ranks))
            if hasattr(context, "get_parallel"):
                parallel = context.get_parallel()
                places = {**parallel._overrides, "tp_size": ranks, "tp_rank": rank, "attn_tp_size": ranks}
                stack.enter_context(replaced(parallel, "_overrides", places))
            return self.engine[_MODEL].FalconH1HybridAttentionDecoderLayer(self.config, 0).mamba.out_proj


def _nothing(*_: Any, **__: Any) -> Any:
    """Comes before both, or behind them."""
    return SimpleNamespace()
