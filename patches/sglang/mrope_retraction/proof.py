"""Proof of sglang.mrope-retraction: requests with an image are taken back, and start again with their answers so far.

Real: the request, its next round, and the positions that a batch computes. Spared: first rounds, and requests without images.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import module

from .wrap import extended

_SCHEDULE, _BATCH = "sglang.srt.managers.schedule_batch", "sglang.srt.model_executor.forward_batch_info"
_ROWS, _COLUMNS, _BEFORE, _BEHIND = 3, 2, 4, 2  # of the image; tokens of text before it and behind it
_PROMPT = _BEFORE + _ROWS * _COLUMNS + _BEHIND


class Case(NamedTuple):
    """`answers`: tokens of the answer at each start, 0 for the first. `cached`: tokens that need no prefill. `tries`: how often
    the scheduler looks whether the request fits."""

    answers: tuple[int, ...]
    cached: int = 0
    tries: int = 1
    image: bool = True


class Proof(Cases):
    modules = (_SCHEDULE, _BATCH)
    kernel = "none"
    measure = "relative error of positions"
    bug = (
        Case((0, 5)),
        Case((0, 5), cached=7, tries=3),
        Case((0, 5), cached=_PROMPT),
        Case((0, 5, 9), tries=2),
        Case((0, 9), cached=_PROMPT + 4),
    )
    spared = (Case((0,)), Case((0,), cached=7), Case((0, 5), image=False), Case((0, 5, 9), cached=14, image=False))
    broken = {
        "the correction does nothing": (extended, lambda real, positions, more: positions),
        "the answer begins one token late": (extended, lambda real, positions, more: real(positions, more + 1)[:, 1:]),
        "the answer has the prompt's last position": (
            extended, lambda real, positions, more: real(positions, more).clamp(max=positions.max()),
        ),
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        self.runner = construction.serve("--attention-backend", "triton", draft=False)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        places = torch.arange(_PROMPT).expand(3, -1).clone()
        if case.image:
            for cell in range(_ROWS * _COLUMNS):
                places[:, _BEFORE + cell] = _BEFORE + torch.tensor([0, cell // _COLUMNS, cell % _COLUMNS])
            places[:, -_BEHIND:] = _BEFORE + max(_ROWS, _COLUMNS) + torch.arange(_BEHIND)
        request = self._request()
        if case.image:
            home = self.engine[_SCHEDULE]
            delta = (places.max() + 1 - _PROMPT).view(1, 1)
            request.multimodal_inputs = home.MultimodalInputs(
                mm_items=[], mrope_positions=places.clone(), mrope_position_delta=delta
            )
        for answer in case.answers:
            request.output_ids.extend([7] * (answer - len(request.output_ids)))
            request.is_retracted = answer > 0
            for _ in range(case.tries):
                request.init_next_round_input(None)
            request.is_retracted = False  # as a batch takes it
        count = _PROMPT + case.answers[-1]
        reference = torch.cat([places, (places.max() + 1 + torch.arange(case.answers[-1])).expand(3, -1)], 1)
        found = self._positions(request, case.cached, count)
        if found.shape[1] != count - case.cached:
            return Observation(float("inf"), str(tuple(found.shape)))
        return observe(found.float(), reference[:, case.cached :].double())

    def _request(self) -> Any:
        wanted = module("sampling.sampling_params").SamplingParams(max_new_tokens=99)
        kind = self.engine[_SCHEDULE].Req
        tokens = kind("0", "", [], wanted, vocab_size=100).output_ids  # a list, or an array in later releases
        tokens.extend([7] * _PROMPT)
        return kind("1", "", tokens, wanted, vocab_size=100)

    def _positions(self, request: Any, cached: int, count: int) -> Any:
        """[3, tokens] of a prefill of the request alone."""
        import torch

        new = count - cached
        batch = self.runner.forward_batch(
            "EXTEND", batch_size=1, input_ids=torch.zeros(new, dtype=torch.int64), req_pool_indices=torch.zeros(1).long(),
            seq_lens=torch.tensor([count]), seq_lens_cpu=torch.tensor([count]), seq_lens_sum=count,
            out_cache_loc=torch.arange(new),
        )  # fmt: skip
        lens = {"extend_seq_lens": [new], "extend_lens": [new], "extend_prefix_lens": [cached], "prefix_lens": [cached]}
        images = [request.multimodal_inputs]
        batch._compute_mrope_positions(self.runner, SimpleNamespace(multimodal_inputs=images, reqs=[request], **lens))
        return batch.mrope_positions
