"""Proof of sglang.dsa-index-rope: queries and keys of an indexer, and of the attention beside it.

Real: the indexer with its constructor, its projections, and both rotary embeddings. Stood in for: the CUDA kernel that rotates
in place, and the Hadamard transform behind it, which changes no score. Spared: attention without an indexer.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe
from attnfix.patches.lab.rotary import frequencies, rotated, rotated_in_pairs, yarn
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import accepted, module, on_cpu

from . import wrap

_INDEXER, _ROTARY = "sglang.srt.layers.attention.nsa.nsa_indexer", "sglang.srt.layers.rotary_embedding"
_LATER = "sglang.srt.layers.attention.dsa.dsa_indexer"
_HEAD, _TURNED, _WIDTH, _LORA = 128, 64, 64, 32


class Case(NamedTuple):
    base: float = 10000.0
    #: Factor of YaRN; without it, `rope_scaling` is absent
    factor: float | None = None
    heads: int = 4
    tokens: int = 33
    indexer: bool = True


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _LATER, _INDEXER, _ROTARY)
    may_lack = (_INDEXER, _LATER)
    needs = f"{_INDEXER}:Indexer"
    absent = "no indexer that chooses its style"
    bug = (Case(factor=8.0), Case(factor=1.0, heads=1, tokens=1), Case(base=1e6, heads=64))
    spared = (Case(factor=8.0, indexer=False), Case(base=1e6, indexer=False))
    broken = {
        "the correction does nothing": (wrap.style, lambda real, named: named),
        "the base is another": (wrap.style, lambda real, named: {**real(named), "base": 2 * named["base"]}),
    }

    def _imported(self, name: str) -> Any:
        """Later releases have the indexer elsewhere, and pass its name on."""
        return None if name == _INDEXER and _LATER in sys.modules else super()._imported(name)

    def prepare(self) -> None:
        super().prepare()
        if accepted(self.engine[_INDEXER].Indexer, {"is_neox_style": True}):
            raise NoSuchPath("models name the style of their indexer")
        self.stand_in()

    def stand_in(self) -> None:
        """A server, and what stands for kernels."""
        indexer, rotary = self.engine[_INDEXER], self.engine[_ROTARY]
        operators = module("custom_op") or module("layers.utils.multi_platform")
        self.served = construction.serve("--attention-backend", "triton", config=construction.DEEPSEEK, draft=False)
        vars(indexer).update(is_cuda=lambda: True, deep_gemm=DeepGemm, rotate_activation=lambda rows: rows)
        for home in (rotary, operators):
            vars(home)["_is_cuda"] = True
        vars(rotary)["apply_rope_with_cos_sin_cache_inplace"] = rotate_in_place

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        torch.manual_seed(seed)
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.no_grad():
                return self._compared(case)
        finally:
            torch.set_default_dtype(former)

    def _compared(self, case: Case) -> Observation:
        import torch

        rope = {
            "rope_type": "deepseek_yarn", "factor": case.factor, "original_max_position_embeddings": 256, "beta_fast": 32,
            "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        } if case.factor else None  # fmt: skip
        length = 256 * int(case.factor or 1)
        positions = torch.cat([torch.randint(length, (case.tokens - 1,)), torch.tensor([length - 1])])
        turns = yarn(_TURNED, case.base, case.factor, 32, 1, 256, True) if case.factor else frequencies(_TURNED, case.base)
        with on_cpu():
            own = self.engine[_ROTARY].get_rope_wrapper(
                _TURNED, rotary_dim=_TURNED, max_position=length, base=case.base, rope_scaling=rope, is_neox_style=False,
                device="cuda",
            )  # fmt: skip
            out, right = self._indexed(case, rope, length, positions, turns) if case.indexer else ([], [])
        vectors = torch.randn(case.tokens, case.heads, _TURNED)
        out += own(positions, vectors.clone(), vectors[:, 0].clone())
        right += [rotated_in_pairs(it.double(), positions, turns) for it in (vectors, vectors[:, :1])]
        return observe(torch.cat([it.flatten() for it in out]), torch.cat([it.flatten() for it in right]))

    def _indexed(self, case: Case, rope: Any, length: int, positions: Any, turns: Any) -> tuple[list[Any], list[Any]]:
        """Queries and keys of an indexer, and what they should be."""
        import torch

        indexer = self.indexer(case, rope, length)
        inputs, lora = torch.randn(case.tokens, _WIDTH), torch.randn(case.tokens, _LORA)
        given = accepted(indexer._get_q_k_bf16, {"enable_dual_stream": False, "forward_batch": Batch()})
        out = indexer._get_q_k_bf16(lora, inputs, positions, **given)[:2]
        plain = indexer.wq_b(lora)[0].view(case.tokens, -1, _HEAD), indexer.k_norm(indexer.wk(inputs)[0])[:, None]
        right = []
        for vectors in plain:
            first, rest = vectors.double().split(_TURNED, -1)
            right.append(torch.cat([rotated(first, positions, turns).view(first.shape), rest], -1))
        return list(out), right

    def indexer(self, case: Any, rope: Any, length: int, **more: Any) -> Any:
        """One with random weights. rope: `rope_scaling`; length: positions of its table."""
        import torch

        indexer = self.engine[_INDEXER].Indexer(
            hidden_size=_WIDTH, index_n_heads=case.heads, index_head_dim=_HEAD, rope_head_dim=_TURNED, index_topk=2048,
            q_lora_rank=_LORA, max_position_embeddings=length, rope_theta=case.base, layer_id=0, scale_fmt="ue8m0",
            rope_scaling=rope, **more,
        )  # fmt: skip
        for weight in indexer.parameters():
            weight.data.copy_(torch.randn(weight.shape) / 4)
        return indexer


class DeepGemm:
    @staticmethod
    def get_num_sms() -> int:
        return 132


class Batch:
    """Without context parallelism."""

    attn_cp_metadata = nsa_cp_metadata = None


def rotate_in_place(positions: Any, query: Any, key: Any, head_size: int, cos_sin_cache: Any, is_neox: bool) -> None:
    """In the place of sgl-kernel's `apply_rope_with_cos_sin_cache_inplace`."""
    import torch

    cos, sin = (part[:, None] for part in cos_sin_cache[positions].chunk(2, -1))
    for rows in (query, key):
        heads = rows.unflatten(-1, (-1, head_size)).flatten(1, -2).float()
        first, second = heads.chunk(2, -1) if is_neox else (heads[..., ::2], heads[..., 1::2])
        turned = first * cos - second * sin, second * cos + first * sin
        rows.copy_((torch.cat(turned, -1) if is_neox else torch.stack(turned, -1).flatten(-2)).view(rows.shape))
