"""Proof of sglang.mamba-verify-clear: requests of a hybrid model whose prompts have run are verified, outside CUDA graphs.

Spared: the prompts themselves, whose states must be cleared or be those of the cached prefix, and a batch that a request has
left. Real: the linear attention backend, too; other real and played parts: `lab.sglang.tracked_states`. Played: the layers,
which write the states of a prompt and of accepted drafts.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, cumulative
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.engine import module
from attnfix.patches.lab.sglang.tracked_states import seen

from . import wrap

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_DRAFTS = 3


class Case(NamedTuple):
    """prompts: their tokens; cached: those that begin with a conversation that has ended, by number; ends: one that its prompt
    ends; steps: verifications."""

    prompts: tuple[int, ...]
    cached: tuple[int, ...] = ()
    ends: bool = False
    steps: int = 2


class Proof(Cases):
    modules = (_BACKEND, _QUANTIZATION)
    may_lack = (_BACKEND,)
    kernel = "none"
    needs = "MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear"
    absent = "this backend clears and copies no states before a step"
    measure = "share of states that are not those of their requests"
    bug = (Case((20,)), Case((12, 30, 18)), Case((20,), cached=(0,)), Case((30, 18, 24), cached=(1, 2)))
    spared = (
        Case((20, 18), steps=0),
        Case((20, 30, 18), cached=(1,), steps=0),
        Case((20, 12, 30), cached=(2,), ends=True),
    )
    broken = {
        "the correction does nothing": (wrap.without, lambda real, batch, *names: batch),
        "states are cleared": (wrap.without, lambda real, batch, *names: real(batch, *names[1:])),
        "states are copied": (wrap.without, lambda real, batch, *names: real(batch, *names[:1])),
    }

    def prepare(self) -> None:
        super().prepare()
        self.served = tracked_states.serve()

    def run(self, case: Case, seed: int) -> Observation:
        draw, server = random.Random(seed), tracked_states.Server(self.served, overlap=False)
        self.served.req_to_token_pool = server.pool
        backend = self.served.backend("hybrid_linear_attn_backend:Mamba2AttnBackend")
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        said = text(40)
        server.arrive(said, text(2))
        while server.step():
            pass
        for number, prompt in enumerate(case.prompts):
            start = said if number in case.cached else []
            server.arrive([*start, *text(prompt)], text(1 if case.ends and not number else 20))
        server.step()
        batch = server.last
        told = [
            seen(server.texts[one.rid][:cached]) if cached else (0, 0) for one, cached in zip(batch.reqs, batch.prefix_lens)
        ]
        found = [self._launch(server, backend, batch, "EXTEND", [(1, 1)] * len(told), told)]
        batch.spec_algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string("NGRAM")
        for step in range(case.steps):
            with tracked_states.unpinned():
                batch.spec_info = None
                batch.filter_batch()
                batch.spec_info = SimpleNamespace(prepare_for_decode=lambda batch: None)  # of drafts, which are played
                batch.prepare_for_decode()
            behind = [(step + 2, number) for number in range(len(batch.reqs))]
            found.append(self._launch(server, backend, batch, "TARGET_VERIFY", behind, behind))
        right = [one for step in found for one in step]
        return Observation(right.count(False) / len(right), repr(found))

    def _launch(self, server: Any, backend: Any, batch: Any, mode: str, held: Any, wanted: Any) -> list[bool]:
        """`held`: what the requests' states hold as a step is launched. Which of them are as `wanted` before its layers run."""
        slots = server.pool.get_mamba_indices(batch.req_pool_indices).tolist()
        for slot, value in zip(slots, held, strict=True):
            server._write(slot, value)
        backend.init_forward_metadata(_forward_batch(batch, mode))
        return [server._held(slot) == value for slot, value in zip(slots, wanted, strict=True)]


def _forward_batch(batch: Any, mode: str) -> Any:
    import torch

    home, requests = module("model_executor.forward_batch_info"), len(batch.reqs)
    deferred = "mamba_clear_indices", "mamba_cow_src_indices", "mamba_cow_dst_indices"
    fields = {name: getattr(batch, name) for name in ("req_pool_indices", "seq_lens", *deferred)}
    new = [_DRAFTS] * requests
    if mode == "EXTEND":
        new = batch.extend_lens
        fields |= {
            "extend_num_tokens": sum(new), "extend_seq_lens": torch.tensor(new, dtype=torch.int32), "extend_seq_lens_cpu": new,
            "extend_prefix_lens": torch.tensor(batch.prefix_lens, dtype=torch.int32),
            "extend_prefix_lens_cpu": batch.prefix_lens, "extend_start_loc": cumulative(new)[:-1],
        }  # fmt: skip
    tokens = torch.zeros(sum(new), dtype=torch.int64)
    return home.ForwardBatch(
        forward_mode=home.ForwardMode[mode], batch_size=requests, input_ids=tokens, out_cache_loc=tokens,
        seq_lens_sum=int(batch.seq_lens.sum()), seq_lens_cpu=batch.seq_lens, spec_info=SimpleNamespace(draft_token_num=_DRAFTS),
        **fields,
    )  # fmt: skip
