"""Proof of sglang.vision-padded-positions: the engine pads a batch, whose queries then rotate by its positions.

The rotary embedding is the engine's, in torch. A batch with an image has to keep three rows of positions, as models assert.
Spared: three requests without padding, and positions of a model without M-RoPE.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.rotary import frequencies
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from .wrap import padded

_BATCH, _ROTARY = "sglang.srt.model_executor.forward_batch_info", "sglang.srt.layers.rotary_embedding"
_DIM, _HEADS, _LONGEST = 64, 2, 64
#: Lanes of a head's half that rotate by time, by height and by width
_SECTION = [16, 8, 8]


class Case(NamedTuple):
    """`new`: tokens of each request. `tokens`: those of the batch after padding. `rows`: of its positions, 0 for none."""

    new: tuple[int, ...]
    tokens: int
    mode: str = "EXTEND"
    rows: int = 3


class Proof(Cases):
    modules = (_BATCH, _ROTARY)
    kernel = "none"
    bug = (
        Case((5,), 5),
        Case((7, 2), 12),
        Case((3, 4, 1), 12),
        Case((2, 4, 1, 4), 11),
        Case((2, 4, 1, 4, 6), 20),
        Case((1,), 1, "DECODE"),
        Case((1, 1, 1), 4, "DECODE"),
        Case((1, 1), 6, "DECODE"),
    )
    spared = (
        Case((3, 4, 1), 8),
        Case((1, 1, 1), 3, "DECODE"),
        Case((7, 2), 12, rows=0),
        Case((1,), 4, "DECODE", rows=0),
    )
    broken = {
        "the correction does nothing": (padded, lambda real, positions, tokens: positions),
        "padding lies in front": (padded, lambda real, positions, tokens: real(positions.flip(1), tokens).flip(1)),
        "height and width are swapped": (padded, lambda real, positions, tokens: real(positions[[0, 2, 1]], tokens)),
    }

    def prepare(self) -> None:
        import torch

        super().prepare()
        self.runner = construction.serve("--attention-backend", "triton", draft=False)
        vars(self.runner)["attn_backend"] = self.runner.backend("triton_backend:TritonAttnBackend")
        kind = self.engine[_ROTARY].MRotaryEmbedding
        with replaced(sys.modules[self.engine[_ROTARY].RotaryEmbedding.__module__], "_is_cuda", True):
            rotary = kind(_DIM, _DIM, _LONGEST, 10000, True, torch.float16, mrope_section=_SECTION)
        names = ("forward_native", "_forward_native", "forward")
        self.rotate = getattr(rotary, next(name for name in names if name in vars(kind)))

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        real = sum(case.new)
        positions = torch.randint(1, _LONGEST, (3, real), generator=draw)
        batch = self._batch(case, positions if case.rows else None)
        try:
            self._pad(batch, case.tokens)
            found = batch.mrope_positions if case.rows else batch.positions
            if case.rows and case.mode == "EXTEND" and len(found) != 3:
                return Observation(float("inf"), str(tuple(found.shape)))
            q = torch.randn(case.tokens, _HEADS * _DIM, generator=draw)
            out, _ = self.rotate(found, q.clone(), q.clone())
        except RuntimeError as wrong:
            return Observation(float("inf"), str(wrong))
        return observe(out[:real], _exact(q[:real], positions if case.rows else batch.positions[:real].expand(3, -1)))

    def _batch(self, case: Case, positions: Any) -> Any:
        """Requests without a cache, each of whose tokens has positions of its own."""
        import torch

        count, real = len(case.new), sum(case.new)
        lens, fields = torch.tensor(case.new), {}
        if case.mode == "EXTEND":
            fields = {
                "extend_num_tokens": real, "extend_seq_lens": lens.int(), "extend_seq_lens_cpu": [*case.new],
                "extend_prefix_lens": torch.zeros(count, dtype=torch.int32), "extend_prefix_lens_cpu": [0] * count,
            }  # fmt: skip
        return self.runner.forward_batch(
            case.mode, batch_size=count, input_ids=torch.zeros(real, dtype=torch.int64), seq_lens=lens, seq_lens_cpu=lens,
            seq_lens_sum=real, req_pool_indices=torch.arange(count), out_cache_loc=torch.arange(real),
            positions=torch.cat([torch.arange(n) for n in case.new]), mrope_positions=positions, lora_ids=[None] * count,
            spec_algorithm=self.runner.spec_algorithm, **fields,
        )  # fmt: skip

    def _pad(self, batch: Any, tokens: int) -> None:
        """As the ranks agreed on, once each had told how many it has."""
        import torch

        size = tokens if batch.forward_mode.is_decode() else batch.batch_size
        if hasattr(batch, "_pad_inputs_to_size"):
            return batch._pad_inputs_to_size(self.runner, tokens, size)
        counts, make = torch.tensor([tokens]), torch.tensor
        vars(batch).update(
            global_num_tokens_cpu=[tokens], global_num_tokens_for_logprob_cpu=[tokens], global_num_tokens_gpu=counts,
            is_extend_in_batch=not batch.forward_mode.is_decode(),
        )  # fmt: skip
        with replaced(torch, "tensor", lambda values, pin_memory=False, **given: make(values, **given)):
            batch.prepare_mlp_sync_batch(self.runner)


def _exact(q: Any, positions: Any) -> Any:
    """float64 [tokens, heads * d]: each lane of a head's half rotates by the position of its section. positions: [3, tokens]"""
    import torch

    axes = torch.repeat_interleave(torch.arange(3), torch.tensor(_SECTION))
    angles = (positions[axes].T.double() * frequencies(_DIM))[:, None]
    first, second = q.double().view(-1, _HEADS, _DIM).chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)
