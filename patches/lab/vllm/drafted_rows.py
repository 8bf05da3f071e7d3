"""A layer with recurrent states behind the V1 model runner, in steps whose rows have drafts or none: 0.11.1-0.33.0.

Real: the runner and its batch, by their own constructors, and of the runner `_update_states`, `_prepare_inputs`,
`_build_attention_metadata` and `_update_states_after_model_execute`; the builder of the layer's metadata. Emulated: the
scheduler (steps are given, one at a time), the sampler, the kernel that finds slots, and the layer (`gated_delta`).

A case is a model, the drafts of its server, and steps in a row; a row of `verify(0)` decodes without drafts:

    bug = (case(QWEN3_NEXT, step(a=9, b=5), step(a=verify(kept=3), b=verify()), step(a=verify(0), b=verify())),)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Cases, Observation, code_of, combine, observe, replaced

from . import gated_delta, kernels
from .construction import Worker
from .gated_delta import ATTENTION, FULL, ROOM, Request, Verify, descriptor, dispatch
from .model_runner_v1 import RUNNER, streams
from .models import NEMOTRON_H, QWEN3_NEXT
from .states import of_mamba

__all__ = ["NEMOTRON_H", "QWEN3_NEXT", "RUNNER", "DraftedRows", "case"]

#: Model -> module, class and type of its layers
_KINDS = {"qwen3_next": ("gdn_attn", "GDN", "GDN_ATTN"), "nemotron_h": ("mamba2_attn", "Mamba2", "MAMBA2")}
_NGRAM = "vllm.v1.spec_decode.ngram_proposer"
_BACKENDS, _CACHE = "vllm.v1.attention.backends", "vllm.v1.kv_cache_interface"


@dataclass(frozen=True)
class Case:
    model: Mapping[str, Any]
    steps: tuple[Mapping[str, int | Verify], ...]
    drafts: int
    mode: str
    where: str = ""
    graphs: bool = False
    dcp: int = 1


def case(
    model: Any, *steps: Mapping[str, int | Verify], drafts: int = 3, mode: str = "none", where: str = "", graphs: bool = False,
    dcp: int = 1,
) -> Case:  # fmt: skip
    """mode: how states are kept for other requests, as `mamba_cache_mode` has it. No step ends a block. graphs: full ones of
    Mamba2's verifications, for which the runner decides. dcp: size of the group for decode context parallelism."""
    return Case(model, steps, drafts, mode, where, graphs, dcp)


class _Server(gated_delta.Server):
    def __init__(self, of: Case, seed: int):
        self.of = of
        super().__init__(of.drafts, of.graphs, seed)

    def _launched(self, **more: Any) -> Worker:
        cache: dict[str, Any] = {"enable_prefix_caching": self.of.mode != "none"}
        if self.of.mode != "none":
            cache["mamba_cache_mode"] = self.of.mode
        return Worker(
            dict(self.of.model),
            backend=ATTENTION,
            max_requests=ROOM,
            cache=cache,
            scheduler={"async_scheduling": False},
            **({"tp": 4, "dcp": self.of.dcp} if self.of.dcp > 1 else {}),
            **more,
        )

    def _builder(self) -> Any:
        """And the runner that asks it."""
        import torch

        module, name, kind = _KINDS[self.of.model["model_type"]]
        cache: Any = import_module(_CACHE)
        given = dict(
            block_size=1 << 20, shapes=((3, 64), (2, 16, 16)), dtypes=(torch.bfloat16, torch.float32),
            num_speculative_blocks=self.drafts, mamba_cache_mode=self.of.mode, mamba_type=_type(kind),
        )  # fmt: skip
        spec = cache.MambaSpec(
            **{name: value for name, value in given.items() if name in signature(cache.MambaSpec).parameters}
        )
        cls = getattr(import_module(f"{_BACKENDS}.{module}"), f"{name}AttentionMetadataBuilder")
        builder = cls(spec, ["layer"], self.worker.config, torch.device("cpu"))
        config = SimpleNamespace(kv_cache_groups=[cache.KVCacheGroupSpec(["layer"], spec)], needs_kv_cache_zeroing=False)
        self.runner = runner = import_module(RUNNER).GPUModelRunner(self.worker.config, torch.device("cpu"))
        sizes = [[spec.block_size]] * ("kernel_block_sizes" in signature(runner.may_reinitialize_input_batch).parameters)
        runner.may_reinitialize_input_batch(config, *sizes)
        runner.kv_cache_config, runner.reorder_batch_threshold = config, 1 + self.drafts
        group = import_module("vllm.v1.worker.utils").AttentionGroup(None, ["layer"], spec, 0, metadata_builders=[builder])
        runner.attn_groups = [[group]]
        if self.of.dcp > 1:
            runner.calculate_reorder_batch_threshold()
        runner.input_batch.block_table.compute_slot_mapping = lambda *args, **kwargs: None
        return builder

    def step(self, plan: Mapping[str, int | Verify]) -> Observation:
        import numpy as np
        import torch

        step = self._scheduled(plan)
        for x in (self.q, self.k, self.v):
            x.copy_(self._random(*x.shape))
        with self.worker:
            self.runner._update_states(step)
            plan = {name: plan[name] for name in self.runner.input_batch.req_ids}  # in the order of its rows
            requests = [self.requests[name] for name in plan]
            rows = [(request, step.num_scheduled_tokens[name]) for name, request in zip(plan, requests)]
            new = np.array([count for _, count in rows], dtype=np.int32)
            longest = {"max_num_scheduled_tokens": int(new.max())}
            prepare = self.runner._prepare_inputs
            prepare(step, new, **{name: longest[name] for name in longest if name in signature(prepare).parameters})
            metadata = self._metadata(step, new)
            if self.graphs and self._decided(new) == FULL:
                self.graphs[len(new)].replay()
            else:
                self._layer(metadata)
            right = self._reference(rows, plan)
            self._sampled(plan, requests, step)
        held = [self.states[1 + request.slot * self.columns + request.accepted - 1] for request in requests]
        return observe(torch.cat([self.out[: int(new.sum())].flatten(), torch.stack(held).flatten()]), right)

    def _scheduled(self, plan: Mapping[str, int | Verify]) -> Any:
        """The scheduler's output: a request with drafts is in its table of drafts, another is not."""
        output: Any = import_module("vllm.v1.core.sched.output")
        step, cached = _nothing_scheduled(output), output.CachedRequestData.make_empty()
        params: Any = import_module("vllm.sampling_params").SamplingParams(max_tokens=99)
        for name, new in plan.items():
            fresh = name not in self.requests
            request = self.requests.setdefault(name, Request(len(self.requests)))
            drafts = max(self._drafts(new), 0)
            count = 1 + drafts if isinstance(new, Verify) else new
            step.num_scheduled_tokens[name] = count
            if drafts:
                step.scheduled_spec_decode_tokens[name] = [1] * drafts
            if fresh:
                blocks = [1 + request.slot * self.columns + column for column in range(self.columns)]
                given = dict(
                    req_id=name, prompt_token_ids=[1] * self._prompt(name), mm_features=[], sampling_params=params,
                    pooling_params=None, block_ids=(blocks,), num_computed_tokens=0, lora_request=None,
                )  # fmt: skip
                step.scheduled_new_reqs.append(output.NewRequestData(**given))
            else:
                cached.req_ids.append(name)
                cached.new_block_ids.append(None)
                cached.num_computed_tokens.append(request.computed)
                cached.num_output_tokens.append(len(self.runner.requests[name].output_token_ids))
            request.asks(new)
        step.total_num_scheduled_tokens, step.scheduled_cached_reqs = sum(step.num_scheduled_tokens.values()), cached
        return step

    def _prompt(self, name: str) -> int:
        """Tokens of a prompt, which may be computed in several steps."""
        return sum(new for plan in self.of.steps if isinstance(new := plan.get(name), int))

    def _metadata(self, step: Any, new: Any) -> Any:
        """As `execute_model` asks for it: up to 0.31.0 it says of a step whether a request has drafts, then of the server."""
        runner, count, total = self.runner, len(new), int(new.sum())
        of_server = "zero_draft_decode_mask" in code_of(type(runner)._prepare_inputs).co_varnames
        given = dict(
            num_tokens=total, num_reqs=count, max_query_len=int(new.max()), total_num_scheduled_tokens=total,
            max_num_scheduled_tokens=int(new.max()), logits_indices=runner.query_start_loc.gpu[1 : count + 1] - 1,
            use_spec_decode=of_server or bool(step.scheduled_spec_decode_tokens), max_num_sampled_tokens=1 + self.drafts,
            num_scheduled_tokens=step.num_scheduled_tokens, slot_mappings=_NoSlots(),
        )  # fmt: skip
        wanted = signature(runner._build_attention_metadata).parameters
        return runner._build_attention_metadata(**{name: given[name] for name in given if name in wanted})[0]["layer"]

    def _decided(self, new: Any) -> str:
        """The mode that the runner decides for rows of so many tokens, where there is a full graph for each uniform batch."""
        self.runner.cudagraph_dispatcher = SimpleNamespace(dispatch=partial(dispatch, descriptor()))
        mode: str = self.runner._determine_batch_execution_and_padding(
            num_tokens=int(new.sum()), num_reqs=len(new), num_scheduled_tokens_np=new, max_num_scheduled_tokens=int(new.max()),
            use_cascade_attn=False,
        )[0]  # fmt: skip
        return mode

    def _sampled(self, plan: Mapping[str, int | Verify], requests: list[Request], step: Any) -> None:
        """What the runner keeps of the tokens that each request got."""
        import torch

        runner, batch = self.runner, self.runner.input_batch
        ids = torch.full((len(requests), self.columns), -1)
        for row, (name, request) in enumerate(zip(plan, requests)):
            kept = request.accepted
            ids[row, :kept] = 1
            if request.computed < self._prompt(name):
                continue
            end = request.computed + 1
            batch.token_ids_cpu[row, end - kept : end] = 1
            for known in (batch.num_tokens_no_spec, getattr(batch, "num_tokens", None)):
                if known is not None:
                    known[row] = end
            runner.requests[name].output_token_ids.extend([1] * kept)
        after = runner._update_states_after_model_execute
        with replaced(runner.cache_config, "mamba_cache_mode", "none") if self.of.mode != "none" else nullcontext():
            after(*(ids, step)[: len(signature(after).parameters)])  # no state is moved, since no block is full

    def _layer(self, metadata: Any) -> None:
        if self.of.model is not NEMOTRON_H:
            return super()._layer(metadata)
        for tokens, read, written in of_mamba(metadata):
            self._run(list(tokens), read or 0, [block or 0 for block in written])


def _nothing_scheduled(output: Any) -> Any:
    kind: Any = output.SchedulerOutput
    if hasattr(kind, "make_empty"):
        return kind.make_empty()
    given: dict[str, Any] = dict(  # up to 0.11.2
        scheduled_new_reqs=[], scheduled_cached_reqs=None, num_scheduled_tokens={}, total_num_scheduled_tokens=0,
        scheduled_spec_decode_tokens={}, scheduled_encoder_inputs={}, num_common_prefix_blocks=[], finished_req_ids=set(),
        free_encoder_mm_hashes=[],
    )  # fmt: skip
    return kind(**given)


class _NoSlots(dict):
    """Slots of no group: layers with states have none."""

    def __missing__(self, group: int) -> None:
        return None


def _type(kind: str) -> Any:
    kinds: Any = getattr(kernels.found(f"{_BACKENDS}.registry"), "MambaAttentionBackendEnum", None)
    by_name = isinstance(import_module(_CACHE).MambaSpec.mamba_type, str)
    return {"GDN_ATTN": "gdn_attention", "MAMBA2": "mamba2"}[kind] if by_name else getattr(kinds, kind)


class DraftedRows(Cases):
    """Base of the proofs. A server that an assertion ends is infinitely wrong."""

    modules: tuple[str, ...] = (RUNNER, _NGRAM)

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        with ExitStack() as stack:
            stack.enter_context(streams())
            for owner in filter(lambda owner: hasattr(owner, "NgramProposer"), self.engine.values()):
                stack.enter_context(replaced(owner, "NgramProposer", lambda config: None))
            if hasattr(torch.compiler, "set_stance"):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            server = _Server(case, seed)
            try:
                return combine(*(server.step(plan) for plan in case.steps))
            except AssertionError as ended:
                return Observation(math.inf, hashlib.sha256(str(ended).encode()).hexdigest())
