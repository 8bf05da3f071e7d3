"""Proof of sglang.drafter-idle-rank: a step of several draft layers on a rank without requests, padded for the others or not.

Real: the worker's step, fa3's plans, and the runner's pass of an idle batch. Played: the draft layers, which look at the plan
that they would attend with, and how a `ForwardBatch` is made and padded. Spared: a rank with requests.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from .wrap import has_requests

_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2"
_RUNNER, _INPUT = "sglang.srt.model_executor.runner.eager_runner", "sglang.srt.speculative.eagle_info"
_COMMON = "sglang.srt.speculative.eagle_worker_common"
_CONTEXT = "sglang.srt.model_executor.forward_context"
_VOCABULARY = 16


class Case(NamedTuple):
    """`lengths` of the rank's requests; `padded`: requests of an idle rank's batch once it is padded."""

    lengths: tuple[int, ...] = ()
    padded: int = 0
    layers: int = 2


class Proof(Cases):
    modules = (_WORKER, _RUNNER, _INPUT, _COMMON, _CONTEXT)
    may_lack = modules
    needs = f"{_WORKER}:MultiLayerEagleDraftWorker._draft_extend_for_decode: init_forward_metadata"
    absent = "draft layers are planned once their batch is padded"
    kernel = "none"
    measure = "share of draft layers without the plan of their batch, infinite where the step raises"
    bug = (Case(), Case(padded=2), Case(padded=3, layers=3))
    spared = (Case(lengths=(5, 9)), Case(lengths=(7,), layers=3))
    broken = {
        "the correction does nothing": (has_requests, lambda real, batch: True),
        "no batch is planned": (has_requests, lambda real, batch: False),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        drafts = case.layers + 1
        runner = construction.serve(
            "--attention-backend", "fa3", "--enable-multi-layer-eagle", "--speculative-algorithm", "EAGLE",
            "--speculative-num-steps", str(case.layers), "--speculative-eagle-topk", "1",
            "--speculative-num-draft-tokens", str(drafts),
        )  # fmt: skip
        layers = [_Layer(self, runner, case) for _ in range(case.layers)]
        worker = object.__new__(self.engine[_WORKER].MultiLayerEagleDraftWorker)
        vars(worker).update(
            speculative_num_steps=case.layers, speculative_num_draft_tokens=drafts, topk=1, device="cpu",
            server_args=runner.server_args, draft_runner_list=layers, draft_runner=runner, draft_extend_num_front_tokens=0,
            plan_stream=None, plan_stream_ctx=contextlib.nullcontext(), cuda_graph_runner_for_draft_extend=None,
            use_rejection_sampling=False, chain_mtp_hidden_states=False,
        )  # fmt: skip
        forward_batch = self._batch(runner, case, drafts)
        lengths, tokens = forward_batch.seq_lens, forward_batch.input_ids
        batch = SimpleNamespace(
            forward_mode=forward_batch.forward_mode, seq_lens=lengths, seq_lens_cpu=lengths, model_config=runner.model_config
        )
        result = SimpleNamespace(
            logits_output=SimpleNamespace(hidden_states=None), next_token_ids=tokens.clone(),
            next_draft_input=SimpleNamespace(), accept_lens=torch.ones(len(case.lengths), dtype=torch.int32),
        )  # fmt: skip
        made = SimpleNamespace(init_new=lambda *_, **__: forward_batch)
        with replaced(self.engine[_COMMON], "ForwardBatch", made):
            try:
                worker._draft_extend_for_decode(batch, result)
            except RuntimeError as wrong:
                return Observation(float("inf"), str(wrong))
        wanted = [case.lengths or (1,) * case.padded] * case.layers
        seen = [layer.seen for layer in layers]
        drafted = tuple(result.next_draft_input.topk_index.shape)
        missing = sum(found != want for found, want in zip(seen, wanted, strict=True)) / case.layers
        return Observation(missing if drafted == (len(case.lengths), case.layers) else float("inf"), str((seen, drafted)))

    def _batch(self, runner: Any, case: Case, drafts: int) -> Any:
        """A `ForwardBatch` after verification, with the lengths before it."""
        import torch

        count, lengths = len(case.lengths), torch.tensor(case.lengths, dtype=torch.int64) - drafts
        fields = {
            "extend_num_tokens": count * drafts, "extend_seq_lens": torch.full((count,), drafts, dtype=torch.int32),
            "extend_seq_lens_cpu": [drafts] * count, "extend_start_loc": torch.arange(count, dtype=torch.int32) * drafts,
            "extend_prefix_lens_cpu": [n - drafts for n in case.lengths],
        } if count else {}  # fmt: skip
        return runner.forward_batch(
            "DRAFT_EXTEND_V2" if count else "IDLE", batch_size=count, seq_lens=lengths, seq_lens_cpu=lengths,
            seq_lens_sum=int(lengths.sum()), input_ids=torch.zeros(count * drafts, dtype=torch.int64),
            positions=torch.zeros(count * drafts, dtype=torch.int64), req_pool_indices=torch.arange(count),
            out_cache_loc=torch.arange(count * drafts), spec_algorithm=runner.spec_algorithm,
            spec_info=self.engine[_INPUT].EagleDraftExtendInput(num_tokens_per_req=drafts), **fields,
        )  # fmt: skip


class _Layer:
    """A draft layer's runner. `seen`: lengths of the plan that it would attend with."""

    def __init__(self, proof: Proof, runner: Any, case: Case):
        self.attn_backend = runner.backend("flashattention_backend:FlashAttentionBackend")
        self.req_to_token_pool, self.token_to_kv_pool = runner.req_to_token_pool, runner.token_to_kv_pool
        self.model, self.device_timer, self.case, self.spec_algorithm = self, None, case, runner.spec_algorithm
        self.seen: tuple[int, ...] | None = None
        self.idle, self.context = proof.engine[_RUNNER].EagerRunner._execute_idle, proof.engine[_CONTEXT]

    def _pp_kwargs(self, _: Any) -> dict[str, Any]:
        return {}

    def forward(self, *given: Any) -> Any:
        """Of the runner with a batch; of the model with a batch behind its tokens."""
        import torch

        if len(given) > 1:
            plan = self.attn_backend.forward_metadata
            self.seen = () if plan is None else tuple(plan.cache_seqlens_int32.tolist())
            logits = torch.zeros(len(self.case.lengths), _VOCABULARY)
            return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=logits, hidden_states=None))
        batch = given[0]
        if not batch.forward_mode.is_idle():
            return self.forward(batch.input_ids, batch)
        former = batch.batch_size
        if self.case.padded:  # as the ranks agreed on
            batch.batch_size = self.case.padded
            batch.seq_lens = batch.seq_lens_cpu = torch.zeros(self.case.padded, dtype=torch.int64)
            batch.req_pool_indices = batch.seq_lens
        eager = SimpleNamespace(model_runner=self, enable_pdmux=False, load_batch=lambda batch, _: batch)
        try:
            with self.context.forward_context(self.context.ForwardContext(attn_backend=self.attn_backend)):
                return self.idle(eager, batch)
        finally:
            batch.batch_size = former
