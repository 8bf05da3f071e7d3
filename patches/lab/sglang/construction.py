"""Builds what an sglang server consists of, by the engine's own constructors, on a machine without a GPU.

    served = construction.serve("--attention-backend", "triton", "--speculative-algorithm", "EAGLE", …)
    backend = served.backend("triton_backend:TritonAttnBackend")
    graphs = served.draft_extend(backend, captured.DraftModel(served, backend, …))  # captures, as the engine's runner does
    graphs.replay(served.draft_extend_batch(prefix, rows, accepted, graphs))

Real: `ServerArgs` parsed from documented flags, `ModelConfig` of a config.json, process groups (gloo, one rank) and DP
attention, `ReqToTokenPool`, KV pools and allocators, every attention backend with its own `__init__`, `ForwardBatch` and draft
inputs, the CUDA graph runners with their buffers and their calls at capture and replay, Triton kernels (in the interpreter).
One process holds one server at a time: the engine's own state is global.

What a machine without a GPU cannot construct, and what stands there instead:
- `ModelRunner.__init__`: it reads the GPU's memory and loads weights. `Runner` is a subclass of it with the attributes that
  attention reads; each is made as `ModelRunner` makes it.
- The model: `DraftModel` runs attention alone, over inputs that the caller holds.
- Streams, barriers and `torch.cuda.CUDAGraph`: `captured` repeats what was recorded. Graph runners are driven at the seams
  that they have for other devices (`_create_graph`, `_capture_init`, `_capture_graph`, `_replay`). Tried: those of spec v2's
  draft extend in 0.5.8-0.5.12.post1. Runners have such seams from 0.5.6 to 0.5.13.post1; others are not driven.
- FlashInfer's wrappers (not installed here): `FlashInferWrapper` at their names in the backends' modules. They, the TRT-LLM and
  the FA3 kernels run only where the caller puts a stand-in at that name.
- "cuda" written into the engine's code as a device: `on_cpu` makes it "cpu".
- Tried with an MHA model: the backends of 0.5.1, 0.5.9 and 0.5.13 and their multi-step forms; of 0.5.23 Triton's and FA3's, not
  FlashInfer's and TRT-LLM's, which read more of the runner. TRT-LLM MLA was tried in 0.5.8 and 0.5.9.
- More than one rank; weights; KV pools of hybrid models beyond `SWAKVPool`; Blackwell's, ROCm's and NPU's own backends.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import replaced

from . import captured
from .engine import accepted, module, on_cpu

#: One layer of a model that fits anywhere; a caller changes what it needs: `{**LLAMA, "num_hidden_layers": 2}`
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32, "num_hidden_layers": 1, "vocab_size": 64,
    "max_position_embeddings": 128, "torch_dtype": "float16", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    **LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
    "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "q_lora_rank": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 64, "num_nextn_predict_layers": 1,
    "rope_scaling": {
        "type": "yarn", "factor": 1.0, "original_max_position_embeddings": 128, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip
_ATTENTION = "sglang.srt.layers.attention."


def server_args(*flags: str, config: dict[str, Any] = LLAMA, blackwell: bool = False) -> Any:
    """The `ServerArgs` that a launch with these flags has, for a CUDA machine and a model with this config.json.

    A speculative server drafts with the same config. The GPU is none of Blackwell's unless told. Raises SystemExit for a flag
    that the release does not have.
    """
    home = module("server_args")
    folder = Path(tempfile.mkdtemp(prefix="attnfix-model-"))
    (folder / "config.json").write_text(json.dumps(config))
    given = ["--model-path", str(folder), "--device", "cuda", "--mem-fraction-static", "0.5", *flags]
    if "--speculative-algorithm" in flags and "--speculative-draft-model-path" not in flags:
        given += ["--speculative-draft-model-path", str(folder)]
    override = getattr(module("runtime_context"), "override_platform", None)
    if blackwell and override:  # 0.5.19 and later, which settle arguments when these are published
        override(is_sm100=True).install()
    with ExitStack() as stack:
        for name in ("is_sm100_supported", "is_blackwell_supported"):
            if blackwell and hasattr(home, name):
                stack.enter_context(replaced(home, name, lambda *_: True))
        return home.prepare_server_args(given)


def serve(
    *flags: str, config: dict[str, Any] = LLAMA, requests: int = 8, tokens: int = 1024, draft: bool = True,
    window: bool = False, blackwell: bool = False, page_size: int | None = None, device: str = "cpu",
) -> Runner:  # fmt: skip
    """The runner of a server launched with `flags`: its target's, or with `draft` that of its draft model.

    `requests` rows of the page table and `tokens` slots of the KV pool; with `window` the pool of a model that has layers with
    a sliding window, too: layer 0 attends to all, layer 1 to the window. `page_size`: also one that the engine refuses beside
    these flags, though its code knows it. `device`: where its pools and backends are. The last server of a process is the one
    that the engine's own state is about.
    """
    args = _paged_args(flags, config, blackwell, page_size)
    publish(args)
    configs = module("configs.model_config").ModelConfig
    model_config = configs.from_server_args(args, **accepted(configs.from_server_args, {"is_draft_model": draft}))
    if hasattr(module("managers.schedule_batch"), "global_server_args_dict"):  # up to 0.5.3
        module("managers.schedule_batch").global_server_args_dict.update(vars(args))
    _groups(args, model_config)
    return _runner_class()(args, model_config, requests, tokens, draft, window, device)


def publish(args: Any) -> None:
    """Make them those of this process, as a scheduler does."""
    publisher, context = getattr(module("server_args"), "set_global_server_args_for_scheduler", None), module("runtime_context")
    if hasattr(context, "SpawnRanks"):  # the newest releases
        context.publish(args, role="scheduler", ranks=context.SpawnRanks(world_rank=0, gpu_id=0))
    elif publisher:  # 0.5.4 and later
        publisher(args)


def _paged_args(flags: tuple[str, ...], config: dict[str, Any], blackwell: bool, page_size: int | None) -> Any:
    if page_size is None:
        return server_args(*flags, config=config, blackwell=blackwell)
    try:
        return server_args(*flags, "--page-size", str(page_size), config=config, blackwell=blackwell)
    except ValueError:
        args = server_args(*flags, config=config, blackwell=blackwell)
        args.page_size = page_size
        return args


def window_allocator() -> Any:
    """The allocator of a pool for window layers and one for others."""
    homes = (module(f"mem_cache.{name}") for name in ("allocator.swa", "swa_memory_pool", "allocator"))
    return next(vars(one)[name] for one in homes if one and (name := "SWATokenToKVPoolAllocator") in vars(one))


def window_pools_have_pages() -> bool:
    """Whether such a pool may have pages of several tokens in this release."""
    return bool(accepted(window_allocator(), {"page_size": 1}))


def _groups(args: Any, model_config: Any) -> None:
    """One rank's process groups, as `ModelRunner.init_torch_distributed` makes them: those of the first server serve all."""
    if module("distributed.parallel_state").model_parallel_is_initialized():
        return
    state, attention = module("distributed.parallel_state"), module("layers.dp_attention")
    state.set_custom_all_reduce(False)
    meeting = f"file://{tempfile.mkdtemp(prefix='attnfix-groups-')}/rank"
    with _without_cuda():
        state.init_distributed_environment(world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=meeting)
        state.initialize_model_parallel(**accepted(state.initialize_model_parallel, {"tensor_model_parallel_size": 1}))
        start = attention.initialize_dp_attention
        start(**accepted(start, {
            "server_args": args, "model_config": model_config, "enable_dp_attention": False, "tp_rank": 0, "tp_size": 1,
            "dp_size": 1, "moe_dense_tp_size": None, "pp_size": 1,
        }))  # fmt: skip


@contextmanager
def _without_cuda() -> Iterator[None]:
    """Process groups keep a stream and a device for each; on the CPU these are never used."""
    import torch

    former = {name: getattr(torch.cuda, name) for name in ("Stream", "current_stream")}
    for name in former:
        setattr(torch.cuda, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, function in former.items():
            setattr(torch.cuda, name, function)


@functools.cache
def _runner_class() -> type:
    return type("Runner", (Runner, module("model_executor.model_runner").ModelRunner), {})


class Runner:
    """What attention reads of a `ModelRunner`, which is its other base: its properties and methods are the engine's."""

    model: Any  # set by a server that has layers

    def __init__(
        self, args: Any, model_config: Any, requests: int, tokens: int, draft: bool, window: bool, device: str = "cpu"
    ):
        import torch

        self.server_args, self.model_config = args, model_config
        self.device, self.gpu_id, self.tp_rank, self.tp_size = device, 0, 0, 1
        self.dp_size = self.pp_size = self.attn_cp_size = self.dcp_size = 1
        wrapper = module("distributed.parallel_state_wrapper")
        if wrapper and hasattr(wrapper.ParallelState, "trivial"):  # 0.5.16 and later; before, the runner has none
            self.ps = wrapper.ParallelState.trivial()
        self.page_size, self.is_draft_worker, self.max_running_requests = args.page_size or 1, draft, requests
        self.dtype = self.kv_cache_dtype = model_config.dtype
        self.kv_cache_dtype_str = args.kv_cache_dtype
        if args.kv_cache_dtype == "fp8_e4m3":
            self.kv_cache_dtype = torch.float8_e4m3fn
        self.spec_algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string(args.speculative_algorithm)
        self.sliding_window_size = getattr(model_config, "sliding_window_size", None)
        self.attention_chunk_size = getattr(model_config, "attention_chunk_size", None)
        self.is_hybrid = self.is_hybrid_swa = window
        self.use_mla_backend = model_config.attention_arch.name == "MLA"
        self.init_new_workspace = self.use_ngram_embedding = False
        if not hasattr(type(self), "model_is_mrope"):  # a property up to 0.5.10
            self.model_is_mrope = False
        names = args.get_attention_backends() if hasattr(args, "get_attention_backends") else [args.attention_backend] * 2
        self.prefill_attention_backend_str, self.decode_attention_backend_str = names
        self.canary_manager = self.graph_shared_output = None
        runners = module("model_executor.model_runner")
        self._linear_attn_registry_cache = getattr(runners, "_UNSET", None)  # 0.5.13 and later: looked up when first asked
        self.tp_group = module("distributed.parallel_state").get_tp_group()
        with suppress(AttributeError):  # the newest releases' arguments are read-only
            args.use_mla_backend = self.use_mla_backend
        self._pools(requests, tokens)

    def _pools(self, requests: int, tokens: int) -> None:
        """As `ModelRunner.init_memory_pool` makes them, their size given instead of measured."""
        pools, allocators, config = module("mem_cache.memory_pool"), module("mem_cache.allocator"), self.model_config
        extra = 4 + (self.server_args.speculative_num_draft_tokens or 0)
        plain = {"device": self.device, "enable_memory_saver": False}
        self.req_to_token_pool = pools.ReqToTokenPool(size=requests, max_context_len=config.context_len + extra, **plain)
        common = {"size": tokens, "page_size": self.page_size, "dtype": self.kv_cache_dtype, **plain}
        common["layer_num"] = config.num_hidden_layers
        if self.use_mla_backend:
            ranks = {"kv_lora_rank": config.kv_lora_rank, "qk_rope_head_dim": config.qk_rope_head_dim}
            self.token_to_kv_pool = pools.MLATokenToKVPool(**common, **ranks)
        else:
            heads = {"head_num": config.get_num_kv_heads(1), "head_dim": config.head_dim}
            self.token_to_kv_pool = pools.MHATokenToKVPool(**common, **heads)
            if self.is_hybrid_swa:
                former = (module("mem_cache.swa_memory_pool") or pools).SWAKVPool
                layers = {"full_attention_layer_ids": [0], "swa_attention_layer_ids": [1], "enable_kvcache_transpose": False}
                handed_on = {**heads, "dtype": self.kv_cache_dtype, "device": self.device}  # 0.5.2 and 0.5.3 do not name them
                self.token_to_kv_pool = former(**accepted(former, {**common, **layers, "size_swa": tokens}) | handed_on)
        paged = self.page_size > 1
        former = allocators.PagedTokenToKVPoolAllocator if paged else allocators.TokenToKVPoolAllocator
        if self.is_hybrid_swa:
            former = window_allocator()
        self.token_to_kv_pool_allocator = former(**accepted(former, {
            "size": tokens, "size_swa": tokens, "dtype": self.kv_cache_dtype, "device": self.device, "need_sort": False,
            "kvcache": self.token_to_kv_pool, "page_size": self.page_size,
        }))  # fmt: skip
        translators = module("mem_cache.kv_index_translator")
        if translators:  # 0.5.19 and later
            self.kv_index_translator = translators.KVIndexTranslator(
                req_to_token=self.req_to_token_pool.req_to_token, token_to_kv_pool=self.token_to_kv_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator, page_size=self.page_size, device=self.device,
            )  # fmt: skip

    def request(self, tokens: int, row: int) -> Any:
        """Give the request in `row` of the page table that many slots, from the allocator; its slots, in order."""
        size = self.page_size
        slots = self.token_to_kv_pool_allocator.alloc(-(-tokens // size) * size)
        if slots is None:
            raise MemoryError("the KV pool is full")
        self.req_to_token_pool.req_to_token[row, : len(slots)] = slots.int()
        return slots[:tokens]

    def forward_batch(self, mode: str, **given: Any) -> Any:
        """A `ForwardBatch` of this server in a `ForwardMode`, of these fields."""
        file = module("model_executor.forward_batch_info")
        pools = {"token_to_kv_pool": self.token_to_kv_pool, "req_to_token_pool": self.req_to_token_pool}
        batch = file.ForwardBatch(forward_mode=file.ForwardMode[mode], **given, **accepted(file.ForwardBatch, pools))
        translator: Any = getattr(self, "kv_index_translator", None)
        if hasattr(translator, "own_plan"):
            batch.kv_loc_plan = translator.own_plan(batch)
        return batch

    def backend(self, name: str, **given: Any) -> Any:
        """An attention backend by its own `__init__`: `"triton_backend:TritonAttnBackend"`, with what it takes of `given`."""
        import torch

        file, _, kind = name.partition(":")
        former = getattr(importlib.import_module(_ATTENTION + file), kind)
        for place in {sys.modules[one.__module__] for one in former.__mro__ if one.__module__.startswith(_ATTENTION)}:
            for wrapper in _WRAPPERS:
                vars(place).setdefault(wrapper, FlashInferWrapper)
        if self.device != "cpu":
            return former(self, **accepted(former, given))
        with on_cpu(), replaced(torch.cuda, "get_device_capability", lambda *_: (9, 0)):  # the oldest releases ask torch
            return former(self, **accepted(former, given))

    def draft_steps(self, name: str) -> Any:
        """A multi-step draft backend, of the topk and the steps that this server was launched with."""
        topk, steps = self.server_args.speculative_eagle_topk, self.server_args.speculative_num_steps
        return self.backend(name, topk=topk, speculative_num_steps=steps)

    def worker(self, backends: list[Any]) -> Any:
        """What graph runners ask of a spec v2 draft worker, one draft model and one draft-extend backend per layer."""
        import torch

        runners = []
        for backend in backends:
            one = type(self).__new__(type(self))
            vars(one).update(vars(self), attn_backend=backend)
            runners.append(one)
        steps, hidden = self.server_args.speculative_num_steps, self.model_config.hidden_size
        return SimpleNamespace(
            draft_runner=runners[0], draft_extend_attn_backend=backends[0], draft_runner_list=runners,
            draft_extend_attn_backend_list=backends, mtp_model_runner=runners.__getitem__, server_args=self.server_args,
            speculative_num_steps=steps, speculative_num_draft_tokens=self.server_args.speculative_num_draft_tokens,
            topk=self.server_args.speculative_eagle_topk, device=self.device, gpu_id=0,
            speculative_algorithm=self.spec_algorithm, eagle_use_aux_hidden_state=False,
            chain_mtp_hidden_states=False, model_config=self.model_config,
            target_worker=SimpleNamespace(model_runner=self, model_config=self.model_config, device=self.device),
            req_to_hidden_states_pool=torch.zeros(self.req_to_token_pool.size + 1, max(steps - 1, 1), hidden, dtype=self.dtype),
        )  # fmt: skip

    def draft_extend(self, backend: Any, model: Any) -> Any:
        """The engine's `EAGLEDraftExtendCudaGraphRunner` of spec v2, captured; `model` is the draft model."""
        file = module("speculative.eagle_draft_extend_cuda_graph_runner")
        worker = self.worker([backend])
        worker.draft_runner.model = model
        self.draft_runner = worker.draft_runner
        with captured.captured(file.EAGLEDraftExtendCudaGraphRunner, file):
            return file.EAGLEDraftExtendCudaGraphRunner(worker)

    def multi_layer_draft_extend(self, backends: list[Any], models: list[Any]) -> Any:
        """The engine's `MultiLayerEagleMultiStepDraftExtendCudaGraphRunner`, captured; a backend and a model for each layer."""
        file = module("speculative.multi_layer_eagle_draft_extend_cuda_graph_runner")
        worker = self.worker(backends)
        for one, model in zip(worker.draft_runner_list, models, strict=True):
            one.model = model
        self.draft_runner = worker.draft_runner
        with captured.captured(file.MultiLayerEagleDraftExtendCudaGraphRunner, file):
            return file.MultiLayerEagleMultiStepDraftExtendCudaGraphRunner(worker)

    def draft_extend_batch(self, prefix: list[int], rows: list[int], accepted_tokens: list[int], graph_runner: Any) -> Any:
        """The `ForwardBatch` of spec v2's draft extend after a verification, made by the engine's draft input.

        `prefix` tokens of each request before the step, in `rows` of the page table.
        """
        import torch

        drafts = self.server_args.speculative_num_draft_tokens
        int64 = functools.partial(torch.tensor, dtype=torch.int64)
        locs = [self.req_to_token_pool.req_to_token[row, n : n + drafts] for row, n in zip(rows, prefix)]
        schedule = module("managers.schedule_batch")
        fields = dict.fromkeys(schedule.ModelWorkerBatch.__dataclass_fields__) | {
            "forward_mode": module("model_executor.forward_batch_info").ForwardMode.DECODE, "return_logprob": False,
            "req_pool_indices": int64(rows), "seq_lens": int64(prefix), "seq_lens_cpu": int64(prefix),
            "seq_lens_sum": sum(prefix), "out_cache_loc": torch.cat(locs).long(),
            "is_extend_in_batch": False, "can_run_dp_cuda_graph": False,
            "spec_algorithm": self.spec_algorithm, "hicache_consumer_index": -1, "is_prefill_only": False,
            "has_grammar": False,
        }  # fmt: skip
        if "reqs" in fields:  # 0.5.10 and later
            fields["reqs"] = [SimpleNamespace(rid=str(row)) for row in rows]
        fields = accepted(schedule.ModelWorkerBatch, fields)
        kind = module("speculative.eagle_info").EagleDraftInput
        steps, tokens = self.server_args.speculative_num_steps, len(rows) * drafts
        draft_input = kind(**accepted(kind, {
            "hidden_states": torch.zeros(tokens, self.model_config.hidden_size, dtype=self.dtype),
            "num_tokens_per_req": steps + 1, "num_tokens_per_batch": steps + 1,
        }))  # fmt: skip
        batch = draft_input.prepare_for_extend_to_fill_draft_kvcache(
            schedule.ModelWorkerBatch(**fields), torch.zeros(tokens, dtype=torch.int64), drafts, self.draft_runner, graph_runner
        )
        if self.server_args.enable_multi_layer_eagle:  # that worker hands the counts over in `reset_buffers`
            return batch
        counts = torch.tensor(accepted_tokens, dtype=torch.int32)
        for name, value in zip(_ACCEPTED, (counts, counts, counts - 1, counts, counts - 1)):
            if hasattr(draft_input, name):
                setattr(draft_input, name, value)
        return batch


#: What releases call the accepted tokens of a draft input: with the token that follows the drafts, or the drafts alone
_ACCEPTED = "accept_length", "num_accepted_tokens", "num_accepted_drafts", "num_accept_tokens", "num_correct_drafts"


_WRAPPERS = (
    "BatchPrefillWithRaggedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper", "BatchDecodeWithPagedKVCacheWrapper",
    "BatchMLAPagedAttentionWrapper",
)  # fmt: skip


class FlashInferWrapper:
    """In the place of a wrapper of FlashInfer's: it can be made, and nothing else."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.args, self.kwargs = args, kwargs
