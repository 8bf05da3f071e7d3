"""Proof of sglang.dsa-short-prompt-keys: index keys of a batch of short prompts.

Real: the indexer with its constructor, its projections, and its rotary embedding. Stood in for: the CUDA kernel, which rotates
all queries before the first key, as its threads may, and the Hadamard transform. Spared: keys beside queries of their own, and
an embedding that runs in torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe, replaced
from attnfix.patches.lab.rotary import frequencies, rotated, rotated_in_pairs, yarn
from attnfix.patches.lab.sglang.engine import accepted, on_cpu
from attnfix.patches.sglang.dsa_index_rope import proof as indexers

from .wrap import apart

_INDEXER, _ROTARY = "sglang.srt.layers.attention.nsa.nsa_indexer", "sglang.srt.layers.rotary_embedding"
_TURNED, _WIDTH, _LORA, _ORIGINAL = 64, 64, 32, 256


class Case(NamedTuple):
    tokens: int
    #: Factor of YaRN; without it, `rope_scaling` is absent, as GLM-5 has it
    factor: float | None = None
    #: A batch with longer requests, which has queries
    queries: bool = False
    #: An embedding that runs in torch, as `--rl-on-policy-target` has it
    native: bool = False
    base: float = 10000.0
    heads: int = 4


class Proof(indexers.Proof):
    needs = f"{_INDEXER}:Indexer._get_k_bf16"
    absent = "no index keys without queries"
    bug = (Case(33), Case(1, factor=8.0), Case(70, factor=1.0), Case(9, base=1e6))
    spared = (Case(33, queries=True), Case(5, factor=8.0, queries=True), Case(9, native=True))
    broken = {
        "the correction does nothing": (apart, lambda real, query, key: query),
        "the copy shares its memory": (apart, lambda real, query, key: query.view(query.shape)),
    }

    def prepare(self) -> None:
        Cases.prepare(self)
        if hasattr(self.engine[_ROTARY], "__path__"):  # 0.5.10 made it a package, and has another kernel
            raise NoSuchPath("the rotary kernel reads a token's query and key in one warp, before it writes them")
        vars(self.engine[_ROTARY])["get_device"] = lambda *_: "cpu"
        self.stand_in()

    def _compared(self, case: Any) -> Observation:
        import torch

        rope = {
            "rope_type": "deepseek_yarn", "factor": case.factor, "original_max_position_embeddings": _ORIGINAL, "beta_fast": 32,
            "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        } if case.factor else None  # fmt: skip
        length = _ORIGINAL * int(case.factor or 1)
        turns = frequencies(_TURNED, case.base)
        if case.factor:
            turns = yarn(_TURNED, case.base, case.factor, 32, 1, _ORIGINAL, True)
        positions = torch.randint(1, length, (case.tokens,))
        inputs, lora = torch.randn(case.tokens, _WIDTH), torch.randn(case.tokens, _LORA)
        with on_cpu():
            indexer = self.indexer(case, rope, length)
            # Indexers with equal arguments share it
            rotary = indexer.rotary_emb
            with replaced(rotary, "_forward_method", rotary.forward_native if case.native else rotary.forward_cuda):
                if case.queries:
                    given = accepted(indexer._get_q_k_bf16, {"enable_dual_stream": False, "forward_batch": indexers.Batch()})
                    out = indexer._get_q_k_bf16(lora, inputs, positions, **given)[1]
                else:
                    out = indexer._get_k_bf16(inputs, positions, False)
        first, rest = indexer.k_norm(indexer.wk(inputs)[0]).double().split(_TURNED, -1)
        turn = rotated if indexer.rotary_emb.is_neox_style else rotated_in_pairs
        return observe(out, torch.cat([turn(first[:, None], positions, turns), rest], -1))
