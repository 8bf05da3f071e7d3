"""A server of a hybrid model whose states are kept for the radix cache: its scheduler's part, on a machine without a GPU.

    server = tracked_states.Server(tracked_states.serve())
    server.arrive(prompt, answer); server.step(); …
    server.continued  # one entry per request that began with a cached state: is it the state of what was cached?

Real: `ServerArgs`, `ModelConfig`, the pool of requests and of states with its track buffers, the KV pool and its allocator, the
radix cache, `Req`, `ScheduleBatch` with its preparation for prefill and decode, and the `SchedulerBatchResultProcessor`, all by
their own constructors. Up to 0.5.12, the scheduler's `SchedulerOutputProcessorMixin` has the place of the latter. Played: the
scheduler's loop (which batch is next, and whether the last result is processed before or after the next launch), the model,
metrics and the stream of answers. The model's stand-in does what the linear attention backends do with a batch's track mask,
indices and lengths: it writes which tokens a state has seen into the real pool.
"""

from __future__ import annotations

import dataclasses
import zlib
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import replaced

from . import absent, construction  # noqa: F401  absent: its stand-ins for imports are wanted here
from .engine import accepted, module

CHUNK, INTERVAL = 16, 32
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 64, "intermediate_size": 64,
    "hybrid_override_pattern": "M*", "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
    "head_dim": 32, "ssm_state_size": 16, "mamba_num_heads": 4, "n_groups": 1, "mamba_head_dim": 16,
    "chunk_size": CHUNK, "conv_kernel": 4, "vocab_size": 64, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip
#: Up to 0.5.12, extra_buffer takes no Mamba2
QWEN3_NEXT = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32,
    "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip
_ROWS, _STATES, _TOKENS = 16, 160, 8192
_PROCESSOR = "managers.scheduler_components.batch_result_processor"
#: What the scheduler of those releases tells others of a batch
_TOLD = (
    "stream_output", "log_prefill_stats", "log_decode_stats", "log_decode_stats_every_iteration", "report_prefill_stats",
    "report_decode_stats",
)  # fmt: skip


class _Silent:
    """Metrics and the stream of answers: takes everything, says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _Reporter(_Silent):
    num_generated_tokens = forward_ct_decode = 0


class Server:
    """overlap: whether the next batch is launched before the last one's result is processed; lazy: extra_buffer_lazy; mixed:
    whether requests that decode ride in the batch of a prompt, as with --enable-mixed-chunk."""

    generates = True  # else it embeds

    def __init__(self, served: Any, overlap: bool = True, lazy: bool = False, mixed: bool = False):
        import torch

        params, self.chunk = cache_params(served), chunk()
        self.served, self.overlap, self.mixed, self.args = served, overlap, mixed, served.server_args
        self.texts: dict[str, list[int]] = {}
        self.waiting: list[Any] = []
        self.queue: deque[Any] = deque()
        self.running = self.last = None
        #: (tokens of the prefix, whether the state is theirs)
        self.continued: list[tuple[int, bool]] = []
        self.finished: list[Any] = []
        pools = module("mem_cache.memory_pool")
        kind = pools.HybridReqToTokenPool
        self.pool = kind(**accepted(kind, {
            "size": _ROWS, "mamba_size": _STATES, "mamba_spec_state_size": _ROWS, "max_context_len": 512, "device": "cpu",
            "enable_memory_saver": False, "cache_params": params, "mamba_layer_ids": params.layers,
            "enable_mamba_extra_buffer": True, "enable_mamba_extra_buffer_lazy": lazy, "speculative_num_draft_tokens": None,
            "enable_overlap_schedule": overlap,
        }))  # fmt: skip
        self.states = self.pool.mamba_pool.mamba_cache.temporal
        self.states.zero_()
        page = self.args.page_size or 1
        kv = pools.HybridLinearKVPool(**accepted(pools.HybridLinearKVPool, {
            "size": _TOKENS, "dtype": torch.float16, "page_size": page, "head_num": 1, "head_dim": 4,
            "full_attention_layer_ids": [1], "enable_kvcache_transpose": False, "device": "cpu",
            "mamba_pool": self.pool.mamba_pool, "enable_memory_saver": False,
        }))  # fmt: skip
        allocators = module("mem_cache.allocator")
        allocator = allocators.TokenToKVPoolAllocator if page == 1 else allocators.PagedTokenToKVPoolAllocator
        self.allocator = allocator(**accepted(allocator, {
            "size": _TOKENS, "dtype": torch.float16, "device": "cpu", "kvcache": kv, "need_sort": False, "page_size": page,
        }))  # fmt: skip
        given = {
            "disable": False, "req_to_token_pool": self.pool, "token_to_kv_pool_allocator": self.allocator, "page_size": page,
            "enable_mamba_extra_buffer": True, "enable_mamba_extra_buffer_lazy": lazy,
        }  # fmt: skip
        self.tree = _tree(given)
        self.processor = self._processor()

    def _processor(self) -> Any:
        home = module(_PROCESSOR)
        known = {
            "is_generation": self.generates, "disaggregation_mode": module("disaggregation.utils").DisaggregationMode.NULL,
            "enable_overlap": self.overlap, "enable_overlap_mlx": False, "server_args": self.args,
            "model_config": self.served.model_config, "token_to_kv_pool_allocator": self.allocator, "tree_cache": self.tree,
            "req_to_token_pool": self.pool, "metrics_reporter": _Reporter(), "output_streamer": _Silent(),
            "metrics_collector": _Silent(), "model_worker": SimpleNamespace(), "abort_request": lambda *_: None,
        }  # fmt: skip
        if home is None:  # up to 0.5.12: a part of the scheduler
            mixin = module("managers.scheduler_output_processor_mixin").SchedulerOutputProcessorMixin
            off = dict.fromkeys(("enable_metrics", "current_scheduler_metrics_enabled", "enable_hisparse"), False)
            scheduler = type("Scheduler", (mixin,), {**dict.fromkeys(_TOLD, lambda *_, **__: None), **off, **known})()
            scheduler.num_generated_tokens = scheduler.forward_ct_decode = 0
            return scheduler
        kind = home.SchedulerBatchResultProcessor
        beams = module("beam_search.coordinator")
        if beams:  # the newest releases; no request is a beam
            none = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
            known["beam_coordinator"] = beams.BeamCoordinator(
                model_config=self.served.model_config, spec_algorithm=none, dllm_enabled=False, max_req_len=512,
                req_to_token_pool=self.pool, token_to_kv_pool_allocator=self.allocator, tree_cache=self.tree, future_map=None,
            )  # fmt: skip
        return kind(**{field.name: known.get(field.name) for field in dataclasses.fields(kind)})

    def arrive(self, prompt: list[int], answer: list[int], extra_key: str | None = None) -> None:
        schedule, sampling = module("managers.schedule_batch"), module("sampling.sampling_params")
        wanted = sampling.SamplingParams(max_new_tokens=len(answer), ignore_eos=True)
        wanted.normalize(None)
        name = f"r{len(self.texts)}"
        more = {"extra_key": extra_key} if extra_key else {}
        given = array("q", prompt) if hasattr(schedule, "array") else prompt  # up to 0.5.12 a list
        request = schedule.Req(name, "", given, wanted, vocab_size=64, **more)
        self.texts[name] = [*prompt, *answer]
        self.waiting.append(request)

    # The scheduler's loop

    def step(self, prefill: bool = True) -> bool:
        """One turn. Whether there was anything to do."""
        with unpinned():
            return self._step(prefill)

    def _step(self, prefill: bool) -> bool:
        if self.last is not None and self.last.forward_mode.is_extend():
            self.last.filter_batch()
            if self.last.reqs:
                if self.running is None or not self.running.reqs:
                    self.running = self.last
                else:
                    self.running.merge_batch(self.last)
        batch = self._prefill() if prefill and self.waiting else self._decode()
        if batch is not None:
            result = self._launch(batch)
            self.queue.append((batch.copy() if self.overlap else batch, result))
        if self.queue and (not self.overlap or len(self.queue) > 1 or batch is None):
            self._process(*self.queue.popleft())
        self.last = batch
        return batch is not None or bool(self.queue)

    def _prefill(self) -> Any:
        schedule, wanted = module("managers.schedule_batch"), self.waiting[:4]
        running = self.running or schedule.ScheduleBatch(reqs=[], batch_is_full=False)
        adder = module("managers.schedule_policy").PrefillAdder(
            self.tree.page_size, self.tree, self.allocator, running, 0.5, _TOKENS, None
        )
        begins = {}
        for request in wanted:
            request.init_next_round_input(self.tree)
            begins[request.rid] = _source(request)
            adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None)
        requests = adder.can_run_list
        assert len(requests) == len(wanted)
        del self.waiting[:4]
        algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        batch = schedule.ScheduleBatch.init_new(
            requests, self.pool, self.allocator, self.tree, self.served.model_config, self.overlap, algorithm
        )
        self._begins = [begins[one.rid] for one in requests]
        batch.prepare_for_extend()
        if self.mixed and (decoding := self._decode()):
            batch.mix_with_running(decoding)
            batch.decoding_reqs = decoding.reqs
            self.running = None
        return batch

    def _decode(self) -> Any:
        if self.running is None:
            return None
        self.running.filter_batch()
        if not self.running.reqs:
            return None
        self.running.prepare_for_decode()
        return self.running

    def _process(self, batch: Any, result: Any) -> None:
        before = {request.rid for request in batch.reqs if request.finished()}
        if batch.forward_mode.is_extend():
            self.processor.process_batch_result_prefill(batch, result)
        else:
            self.processor.process_batch_result_decode(batch, result)
        self.finished += [one for one in batch.reqs if one.finished() and one.rid not in before]

    # The model

    def _launch(self, batch: Any) -> Any:
        import torch

        lengths = batch.seq_lens_cpu.tolist()
        if batch.forward_mode.is_extend():
            for request, source, cached in zip(batch.reqs, self._begins, batch.prefix_lens):
                if source is not None:
                    right = self._held(int(source)) == seen(self.texts[request.rid][:cached])
                    self.continued.append((cached, right))
        if batch.mamba_track_mask is not None:
            self._track(batch, lengths)
        texts = [self.texts[request.rid] for request in batch.reqs]
        tokens = torch.tensor([text[length] if length < len(text) else 0 for text, length in zip(texts, lengths)])
        if not _has_mamba2():  # up to 0.5.12 the next step's input
            batch.output_ids = tokens
        managers = module("managers.utils")
        logits = module("layers.logits_processor").LogitsProcessorOutput(next_token_logits=None)
        kind = managers.GenerationBatchResult
        return kind(**accepted(kind, {"logits_output": logits, "next_token_ids": tokens, "can_run_cuda_graph": False}))

    def _track(self, batch: Any, lengths: list[int]) -> None:
        mask = batch.mamba_track_mask.tolist()
        if batch.forward_mode.is_extend():
            ends = batch.mamba_track_seqlens.tolist()
            names = "mamba_prefill_track_mask_cpu", "mamba_track_seqlens_cpu"  # of 0.5.21 and later
            known = [getattr(batch, name, None) for name in names]
            if all(values is not None and len(values) == len(batch.reqs) for values in known):
                mask, ends = known
            chunk, begun = self.chunk, batch.prefix_lens
            lengths = [done + (end - done) // chunk * chunk for done, end in zip(begun, ends, strict=True)]
        for request, tracks, slot, length in zip(batch.reqs, mask, batch.mamba_track_indices.tolist(), lengths, strict=True):
            if tracks:
                self._write(slot, seen(self.texts[request.rid][:length]))

    def _write(self, slot: int, seen: tuple[int, int]) -> None:
        for at, value in enumerate(seen):
            self.states[:, slot].flatten(1)[:, at] = value

    def _held(self, slot: int) -> tuple[int, ...]:
        return tuple(int(value) for value in self.states[0, slot].flatten()[:2])


@contextmanager
def unpinned() -> Iterator[None]:
    """Memory is not pinned where there is no GPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.pin_memory:
                return args[0]
            return function(*args, **{name: value for name, value in (kwargs or {}).items() if name != "pin_memory"})

    with Mode():
        yield


def _source(request: Any) -> Any:
    """The slot of the cached state that a request begins with, or None."""
    if not _has_mamba2():  # up to 0.5.12 it is copied into the request's own slot at once
        return request.mamba_pool_idx if len(request.prefix_indices) else None
    owner = request if hasattr(request, "mamba_cow_src_index") else request.kv  # 0.5.19 and later
    return owner.mamba_cow_src_index


def seen(tokens: list[int]) -> tuple[int, int]:
    """How many tokens and which: what a state is a function of, as numbers that float32 holds."""
    return len(tokens), zlib.crc32(bytes(tokens)) & 0xFFFFFF


def _has_mamba2() -> bool:
    return module(_PROCESSOR) is not None


def chunk() -> int:
    """Tokens of a chunk of the model's kernel: a prompt's state is kept where such a chunk ends."""
    return CHUNK if _has_mamba2() else module("managers.schedule_batch").FLA_CHUNK_SIZE


def serve(*flags: str, config: dict[str, Any] | None = None) -> Any:
    """The runner of a server of a hybrid model with tracked states; `config`: of another model than the usual one."""
    home = module("server_args")
    named = "radix-cache" if "mamba_radix_cache_strategy" in vars(home.ServerArgs) else "scheduler"
    override = getattr(module("runtime_context"), "override_platform", None)  # 0.5.19 and later
    # While its options are read, the engine sees a CUDA machine: no other may track states
    with override(is_cuda=True) if override else replaced(home, "is_cuda", lambda: True):
        return construction.serve(
            "--attention-backend", "flashinfer", f"--mamba-{named}-strategy", "extra_buffer", "--mamba-track-interval",
            str(INTERVAL), *flags, config=config or (NEMOTRON if _has_mamba2() else QWEN3_NEXT), draft=False,
        )  # fmt: skip


@contextmanager
def lazily(served: Any) -> Iterator[None]:
    """While it lasts, the server was launched with extra_buffer_lazy."""
    wanted, args = "extra_buffer_lazy", served.server_args
    context = module("runtime_context")
    if hasattr(context, "mamba_extra_buffer_lazy_enabled") or not hasattr(
        args, "enable_mamba_extra_buffer_lazy"
    ):  # from 0.5.18
        mamba = context.get_exec().mamba
        name = "enable_mamba_extra_buffer_lazy"
        with mamba.override(**({name: True} if hasattr(mamba, name) else {"mamba_radix_cache_strategy": wanted})):
            yield
        return
    name = next(one for one in ("mamba_radix_cache_strategy", "mamba_scheduler_strategy") if one in vars(args))
    former = vars(args)[name]
    vars(args)[name] = wanted
    try:
        yield
    finally:
        vars(args)[name] = former


def commit(request: Any, tokens: int) -> None:
    """Say that the KV of so many tokens is in the cache, or will be by steps that were launched."""
    vars(request)["kv_committed_len"] = tokens


def cache_params(served: Any) -> Any:
    """Shapes of the states; in float32, which holds what the model's stand-in writes."""
    import torch

    params = served.model_config.hf_config.mamba2_cache_params
    return dataclasses.replace(params, dtype=dataclasses.replace(params.dtype, conv=torch.float32, temporal=torch.float32))


def _tree(given: dict[str, Any]) -> Any:
    """The radix cache that a server of a hybrid model has in this release."""
    params, registry = module("mem_cache.cache_init_params").CacheInitParams, module("mem_cache.registry")
    if registry is None or "MambaRadixCache" in registry.default_radix_cache_factory.__code__.co_names:
        return module("mem_cache.mamba_radix_cache").MambaRadixCache(params(**accepted(params, given)))
    parts = module("mem_cache.unified_cache.components") or module("mem_cache.unified_cache_components")  # 0.5.16
    components = (parts.ComponentType.FULL, parts.ComponentType.MAMBA)
    kind = module("mem_cache.unified_radix_cache").UnifiedRadixCache
    return kind(params(**accepted(params, {**given, "tree_components": components})))
