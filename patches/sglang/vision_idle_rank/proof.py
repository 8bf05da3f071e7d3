"""Proof of sglang.vision-idle-rank: the batch of a rank without requests, which the engine makes and pads.

Real: `ForwardBatch` of an idle batch, its padding, and the engine's rotary embedding in torch, by the positions that a model of
M-RoPE takes. Played: the scheduler's empty batch. Spared: a model without M-RoPE, a batch that stays empty, and real requests.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import accepted

from .wrap import rows

_BATCH, _ROTARY = "sglang.srt.model_executor.forward_batch_info", "sglang.srt.layers.rotary_embedding"
_DIM, _HEADS, _LONGEST = 32, 2, 64
#: Lanes of a head's half that rotate by time, by height and by width
_SECTION = [8, 4, 4]
_MROPE = {"rope_type": "default", "type": "default", "mrope_section": _SECTION, "rope_theta": 10000.0}


class Case(NamedTuple):
    """`tokens` of the batch once it is padded; `real`: of them, those of a request that decodes."""

    tokens: int
    mrope: bool = True
    real: int = 0


class _Empty:
    """The batch of a scheduler without requests: what nobody set is None."""

    def __getattr__(self, name: str) -> None:
        return None


class Proof(Cases):
    modules = (_BATCH, _ROTARY)
    needs = f"{_BATCH}:ForwardBatch._pad_inputs_to_size: new_zeros"
    absent = "positions of M-RoPE are padded along another dimension, or not at all"
    kernel = "none"
    measure = "relative error of rotated queries of padding, infinite where they have no positions"
    bug = (Case(4), Case(1), Case(7))
    spared = (Case(4, mrope=False), Case(0), Case(3, real=2))
    broken = {
        "the correction does nothing": (rows, lambda real, positions: None),
        "a row is missing": (rows, lambda real, positions: real(positions)[:2]),
        "positions are of another batch": (rows, lambda real, positions: real(positions).new_ones(3, 1)),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        config = {**construction.LLAMA, "rope_scaling": _MROPE} if case.mrope else construction.LLAMA
        runner = construction.serve("--attention-backend", "triton", draft=False, config=config)
        vars(runner).update(attn_backend=runner.backend("triton_backend:TritonAttnBackend"), lora_manager=None)
        vars(runner).update(watermark_state=None)
        if "model_is_mrope" in vars(runner):  # from 0.5.11 on
            runner.model_is_mrope = case.mrope
        batch = self._batch(runner, case)
        try:
            batch._pad_inputs_to_size(runner, case.tokens, case.tokens)
        except RuntimeError as wrong:  # rows of another number, where the correction is broken
            return Observation(float("inf"), str(wrong))
        found = batch.mrope_positions if case.mrope else batch.positions
        q = torch.randn(case.tokens, _HEADS * _DIM, generator=torch.Generator().manual_seed(seed))
        if not case.tokens:
            return Observation(0.0 if found is None or found.numel() == 0 else 1.0, "")
        kind = self.engine[_ROTARY].MRotaryEmbedding
        with replaced(sys.modules[self.engine[_ROTARY].RotaryEmbedding.__module__], "_is_cuda", True):
            rotary = kind(_DIM, _DIM, _LONGEST, 10000, True, torch.float16, mrope_section=_SECTION)
        names = ("forward_native", "_forward_native", "forward")
        rotate = getattr(rotary, next(name for name in names if name in vars(kind)))
        try:
            out, _ = rotate(found, q.clone(), q.clone())
        except (AttributeError, AssertionError, RuntimeError) as wrong:
            return Observation(float("inf"), str(wrong))
        return observe(out[case.real :], q[case.real :].double())  # position 0 leaves queries as they are

    def _batch(self, runner: Any, case: Case) -> Any:
        """As a model runner makes it of the scheduler's."""
        import torch

        home, ints = self.engine[_BATCH], torch.arange(case.real)
        if case.real:
            return runner.forward_batch(
                "DECODE", batch_size=case.real, input_ids=ints, seq_lens=ints + 5, seq_lens_cpu=ints + 5,
                seq_lens_sum=int((ints + 5).sum()), req_pool_indices=ints, out_cache_loc=ints, positions=ints + 4,
                mrope_positions=(ints + 4).repeat(3, 1), lora_ids=[None] * case.real, spec_algorithm=runner.spec_algorithm,
            )  # fmt: skip
        batch = _Empty()
        vars(batch).update(
            forward_mode=home.ForwardMode.IDLE, seq_lens=ints, seq_lens_cpu=ints.clone(), seq_lens_sum=0, input_ids=ints,
            req_pool_indices=ints, out_cache_loc=ints, orig_seq_lens=ints, reqs=[], lora_ids=[],
            spec_algorithm=runner.spec_algorithm, return_hidden_states=False, return_hidden_states_before_norm=False,
            capture_hidden_mode=home.CaptureHiddenMode.NULL, return_hidden_states_mode=home.CaptureHiddenMode.NULL,
        )  # fmt: skip
        make = home.ForwardBatch.init_new
        return make(batch, runner, **accepted(make, {"return_hidden_states_before_norm": False}))
