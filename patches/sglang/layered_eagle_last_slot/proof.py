"""Proof of sglang.layered-eagle-last-slot: each request that gets a slot keeps hidden states, and finds them again.

Real: the draft worker's constructor, the pools of requests, and the engine's form in torch of the kernel that keeps hidden
states. Played: the draft layers, and graphs, which remember the buffer that they would record. Spared: one draft layer.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import accepted, on_cpu

from .wrap import slots

_WORKER, _KERNELS = "sglang.srt.speculative.multi_layer_eagle_worker_v2", "sglang.srt.speculative.multi_layer_eagle_utils"
_DECODE, _FA3 = "sglang.srt.disaggregation.decode", "sglang.srt.layers.attention.flashattention_backend"


class Case(NamedTuple):
    """`ahead`: requests that a decode server takes ahead of the running ones, on another server None."""

    steps: int
    running: int = 4
    ahead: int | None = None


class Proof(Cases):
    modules = (_WORKER, _KERNELS, _DECODE, _FA3)
    may_lack = (_WORKER, _KERNELS)
    needs = f"{_WORKER}:MultiLayerEagleDraftWorker.__init__: req_to_hidden_states_pool"
    absent = "no draft worker that keeps hidden states by slot"
    kernel = "none"
    measure = "relative error of the hidden states of requests, infinite where one has no row"
    bug = (Case(3), Case(2, ahead=8), Case(3, running=1), Case(4, running=3, ahead=2))
    spared = (Case(1), Case(1, ahead=8))
    broken = {
        "the correction does nothing": (slots, lambda real, pool: pool.size),
        "the last slot has no row": (slots, lambda real, pool: real(pool) - 1),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        steps = str(case.steps)
        drafts = ("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(case.steps + 1))
        runner = construction.serve(
            "--attention-backend", "triton", "--enable-multi-layer-eagle", "--speculative-algorithm", "EAGLE",
            "--speculative-num-steps", steps, *drafts, draft=False, requests=case.running,
        )  # fmt: skip
        requests = runner.req_to_token_pool
        if case.ahead is not None:
            requests = self.engine[_DECODE].DecodeReqToTokenPool(
                size=case.running, max_context_len=64, device="cpu", enable_memory_saver=False, pre_alloc_size=case.ahead
            )
        buffer = self._worker(runner, requests).cuda_graph_runner_for_draft_extend
        if case.steps == 1:
            return Observation(float(buffer.numel()), str(tuple(buffer.shape)))
        taken, length = torch.tensor(requests.free_slots), case.steps
        draw = torch.Generator().manual_seed(seed)
        states = torch.randn(len(taken) * length, buffer.shape[2], generator=draw).to(buffer.dtype)
        try:
            self.engine[_KERNELS].assign_hidden_states_pool_torch(
                states, taken, buffer, case.steps - 1, len(taken), torch.full_like(taken, length),
                torch.arange(len(taken)) * length,
            )  # fmt: skip
        except IndexError as wrong:
            return Observation(float("inf"), str(wrong))
        return observe(buffer[taken].double(), states.view(len(taken), length, -1)[:, 1:].double())

    def _worker(self, runner: Any, requests: Any) -> Any:
        """A draft worker; in the place of its graphs, the buffer that they record."""
        home, args = self.engine[_WORKER], runner.server_args
        layer = SimpleNamespace(
            server_args=args, tp_group=None, attn_backend=None, req_to_token_pool=requests,
            model=SimpleNamespace(set_embed_and_head=lambda *_: None),
        )  # fmt: skip
        model = SimpleNamespace(hf_config=SimpleNamespace(architectures=["MiMoV2MTP"]))
        target = SimpleNamespace(
            model_config=runner.model_config, get_memory_pool=lambda: (requests, runner.token_to_kv_pool_allocator),
            model_runner=SimpleNamespace(
                model=SimpleNamespace(get_embed_and_head=lambda: (None, None)), memory_pool_config=None
            ),
        )  # fmt: skip
        worker = SimpleNamespace(model_runner_list=[layer] * args.speculative_num_steps, model_config=model)
        stand_ins = [
            (home, "TpModelWorker", lambda **_: worker),
            (home, "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner", lambda drafter: drafter.req_to_hidden_states_pool),
            (self.engine[_FA3], "FlashAttentionBackend", lambda **_: None),  # up to 0.5.9
        ]
        if hasattr(home, "DraftBackendFactory"):
            factory = SimpleNamespace(create_draft_extend_backend=lambda: None)
            stand_ins.append((home, "DraftBackendFactory", lambda *_: factory))
        kind = home.MultiLayerEagleDraftWorker
        given = dict.fromkeys(("gpu_id", "tp_rank", "dp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "nccl_port"), 0)
        with ExitStack() as stack, on_cpu():
            for place in stand_ins:
                stack.enter_context(replaced(*place))
            return kind(**accepted(kind, {**given, "server_args": args, "target_worker": target}))
