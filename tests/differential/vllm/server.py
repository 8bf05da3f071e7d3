"""One server of vLLM: what its engine core and its worker do, step by step, in one process.

Real: the config and its checks, the model loader, the layers with their backend, `get_kv_cache_specs` and what the engine core
makes of them, the scheduler, the model runner with its batches, block tables, metadata builders, CUDA graphs, sampler and
speculator. Emulated: the kernels (`kernels`), the GPU (`gpu`), the platform's answers (`lab.vllm.construction`).
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.vllm import dcp_ranks, models
from attnfix.patches.lab.vllm import kernels as proof_kernels
from attnfix.patches.lab.vllm.construction import Worker
from attnfix.patches.lab.vllm.models import _SHAPE, _TOKENS, MLA

from .. import reference
from ..protocol import Case, Output, Refused, Step, Tolerance, refusing
from . import broken, drafter, engine_core, flashinfer, gpu, images, kernels, lora, mamba2, model, ranks, recurrent, runner_v1
from .ranks import Ranks
from .space import BACKENDS, WINDOW, WINDOWS, not_built, shape

_MEMORY = 1 << 30
_MORE_BLOCKS, _MOST_BLOCKS = 8, 160
_NARROWEST = 16  # the head for which a state of NEMOTRON_H is larger than a block of keys
_IMPORTED_ON = (9, 0)
#: What every case would import anew: the engine and Triton import it when they first need it
_LATE = (
    "vllm.v1.core.sched.async_scheduler", "vllm.v1.executor.multiproc_executor", "vllm.v1.structured_output",
    "triton.experimental.gluon",
)  # fmt: skip
_BYTES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
#: As llm-compressor writes it
_SCHEME = {"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True, "dynamic": False}
_OF_LLAMA = ("architectures", "model_type")
_SCALES = {"q_scale": 0.5, "k_scale": 0.25, "v_scale": 2.0}


def load() -> None:
    lora.before_the_engine()
    torch.set_num_threads(1)
    os.environ["TORCH_COMPILE_DISABLE"] = "1"  # small functions run as they are written: 6 s less a case
    platform = type(import_module("vllm.platforms").current_platform)
    for name, answer in proof_kernels.gpu_answers(_IMPORTED_ON).items():  # some backends ask while they are imported
        if name != "is_pin_memory_available":  # there is: it is mapped into the GPU
            setattr(platform, name, answer)
    proof_kernels.stand_in()
    if find_spec("vllm.v1.worker.gpu"):  # Model Runner V2, which has recurrent layers here
        mamba2.stand_in()
        import_module("vllm.v1.worker.gpu.model_runner")
        import_module(f"vllm.model_executor.models.{recurrent.MODULE}")
    runner_v1.load()
    for path in BACKENDS.values():
        _backend(path)
    for name in _LATE:
        proof_kernels.found(name)
    import_module("vllm.model_executor.layers.quantization").get_quantization_config("compressed-tensors")
    proof_kernels.stand_in()  # again: what was imported since asks for kernels, too
    if hasattr(flash := import_module("vllm.v1.attention.backends.flash_attn"), "cp_lse_ag_out_rs"):  # from 0.11.1
        dcp_ranks.prepare(flash)
    gpu.stand_in()
    kernels.stand_in()
    flashinfer.stand_in()
    ranks.stand_in()
    lora.stand_in()
    model.register_loader()


def _backend(path: str) -> Any:
    """Its module, or None. From 0.20 on, vLLM calls AITER in another way, which the stand-in does not know."""
    if "rocm" in path and tuple(map(int, version("vllm").split(".")[:2])) > (0, 19):
        return None
    return proof_kernels.found(f"vllm.v1.attention.backends.{path.rpartition('.')[0]}")


class _Request:
    """known: its words so far. computed: how many of them have their keys in the cache. salts: of its words."""

    def __init__(self, request: Any, prompt: list[int], salts: Callable[[int], Any]):
        self.request, self.known, self.prompt, self.computed = request, prompt, len(prompt), 0
        self.salts = salts

    @property
    def over(self) -> bool:
        """Whether it has all its words. A scheduler that is ahead may not know yet, and nobody reads what it gets then."""
        over: bool = len(self.known) >= self.prompt + self.request.max_tokens
        return over


class _Rank:
    """A worker: its config, its model runner. ran, drafted: what its layers, and its drafter's, returned since the server last
    looked."""

    def __init__(self, worker: Worker, former: bool):
        self.worker, self.config, self.former = worker, worker.config, former
        self.ran: list[model.Ran] = []
        self.drafted: list[drafter.Drafted] = []
        worker.__enter__()

    def load(self) -> None:
        platform: Any = import_module("vllm.platforms").current_platform
        if workspace := proof_kernels.found("vllm.v1.worker.workspace"):
            workspace.init_workspace_manager(torch.device("cpu"))
        if self.former:
            self.runner = runner_v1.make(self.config)
        else:
            runner: Any = import_module("vllm.v1.worker.gpu.model_runner")
            self.runner = runner.GPUModelRunner(self.config, torch.device("cpu"))
        self.runner.load_model()
        if hasattr(type(platform), "update_block_size_for_backend"):
            platform.update_block_size_for_backend(self.config)

    def begin(self, kv_cache_config: Any) -> None:
        """With the cache that the engine core has planned, as the worker takes it over."""
        self.config.cache_config.num_gpu_blocks = kv_cache_config.num_blocks
        for name in ("hash_block_size", "cache_hit_alignment_tokens"):
            if hasattr(kv_cache_config, name):
                setattr(self.config.cache_config, name, getattr(kv_cache_config, name))
        self.runner.initialize_kv_cache(kv_cache_config)
        self._poison()
        if getattr(kv_cache_config, "needs_kv_cache_zeroing", False):  # as the worker asks
            self.runner._init_kv_zero_meta()

    def capture(self) -> None:
        needed = getattr(self.runner, "needs_cudagraph_capture", lambda: True)  # up to 0.29.0 the runner looks by itself
        if self.config.compilation_config.cudagraph_mode and needed():
            self.runner.capture_model()
            self._poison()
        self._forget()

    def _forget(self) -> None:
        self.ran.clear()
        self.drafted.clear()

    def _poison(self) -> None:
        """The cache holds what its last owner left: large numbers, no NaN."""
        for cache in _tensors(self.runner.kv_caches):
            if cache.dtype in _BYTES:
                cache.view(torch.uint8).copy_(torch.randint(0x50, 0x60, cache.shape, dtype=torch.uint8))
            else:
                cache.uniform_(40, 50)

    def idle(self) -> None:
        """The dummy batch that a rank of data parallelism runs where the others have requests and it has none."""
        cls: Any = import_module("vllm.v1.worker.gpu_worker").Worker
        worker = cls(self.config, local_rank=0, rank=self.worker.rank, distributed_init_method="")
        worker.model_runner = self.runner
        worker.execute_dummy_batch()
        self._forget()

    def drafts(self, scheduled: Any, name: str) -> list[int]:
        """The drafts that a request's rows of this step hold."""
        if self.former:
            return runner_v1.drafts(self.runner, scheduled, name)
        states, count = self.runner.req_states, len(scheduled.scheduled_spec_decode_tokens[name])
        at = states.req_id_to_index.get(name)
        drafts: list[int] = states.draft_tokens[at, :count].tolist() if at is not None else [-1] * count
        return drafts

    def run(self, scheduled: Any) -> tuple[Any, runner_v1.State | None]:
        """(what the engine core gets, the state between the model and the sampler)."""
        self._forget()
        if self.former:
            return runner_v1.run(self.runner, scheduled)
        before = gpu.CUDAGraph.replays
        result = self.runner.execute_model(scheduled)
        replayed = gpu.CUDAGraph.replays > before
        state = self.runner.execute_model_state
        if result is None:
            result = self.runner.sample_tokens(None)
        if state is not None:
            order = list(state.input_batch.req_ids)
            state = runner_v1.State(order, state.attn_metadata, state.slot_mappings_by_layer, replayed)
        return (result.get_output() if hasattr(result, "get_output") else result), state


class Server:
    def __init__(self, case: Case):
        self.case, self.set = case, case["settings"]
        sinks = torch.bfloat16 if self.set["attention-backend"] == "FLASH_ATTN" else None  # its kernel takes no others
        self.contents, self.mla = model.Contents(case["seed"], sinks), self.set["attention"] == "MLA"
        self.requests: dict[str, _Request] = {}
        self.waiting = sorted(range(len(case["requests"])), key=lambda at: case["requests"][at]["arrives"])
        self.steps, self.draft_layer = 0, -1
        self.under_way: list[tuple[Any, Any]] = []  # (what was scheduled, what it gave), the oldest first
        self._prompts = self._all_prompts()
        if tuple(self.set["capability"]) != _IMPORTED_ON:  # what the module says at its import, there
            flash: Any = import_module("vllm.v1.attention.backends.flash_attn")
            flash.FlashAttentionMetadataBuilder._cudagraph_support = flash.AttentionCGSupport.UNIFORM_BATCH
        self.former = runner_v1.serves(case["release"], self.set)
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0" if self.former else "1"
        self.group = Ranks(self.set["tensor-parallel-size"])
        self.ranks: list[_Rank] = []
        if _backend(BACKENDS[self.set["attention-backend"]]) is None:
            raise Refused("this release has no such backend, or this harness no stand-in for its kernel")
        if self.former and (why := not_built(self.set)):
            raise Refused(why)
        with refusing():
            self.group.on_all(lambda rank: self.ranks.append(_Rank(self._known(rank), self.former)))
            self._register()
            self.group.on_all(lambda rank: self.ranks[rank].load())
            self._construct()
        self.group.on_all(lambda rank: self.ranks[rank].capture())

    # construction

    def _known(self, rank: int) -> Worker:
        try:
            return self._worker(rank)
        except TypeError as error:
            if str(error).startswith("this release"):  # has no such setting
                raise NotImplementedError(error) from error
            raise

    def _worker(self, rank: int) -> Worker:
        given = self.set
        heads, kv_heads, size = shape(given)
        text: dict[str, Any] = {**_SHAPE, **_TOKENS, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
        if self.mla:
            text = {**MLA, **text}
        else:
            text |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": size}
        if states := recurrent.LAYERS[given["recurrent"]]:
            wider = size // _NARROWEST
            text = recurrent.config(states, wider, **{name: text[name] for name in text if name not in _OF_LLAMA})
        text |= {"num_hidden_layers": 2 + states, "vocab_size": model.VOCABULARY, "torch_dtype": given["dtype"]}
        whole = {}
        if given["windows"] == "all":  # the whole model's: its config says it, and the engine hands it to the cache's
            text["sliding_window"] = whole["sliding_window"] = WINDOW
        extra: dict[str, Any] = {"seed": self.case["seed"]}
        if given["scales"] != "none":
            text["quantization_config"] = {
                "quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}, "ignore": [],
                "kv_cache_scheme": _SCHEME,
            }  # fmt: skip
            extra["scales"] = _scales(given)
        drafts = {}
        self._architecture = text["architectures"][0]
        if given["speculative-method"] in drafter.OWN:
            drafts["speculative"] = drafter.speculation(given, self._architecture)
        elif given["speculative-method"] != "none":
            drafts["speculative"] = {
                "method": given["speculative-method"], "num_speculative_tokens": given["num-speculative-tokens"],
                "prompt_lookup_min": (least := given["prompt-lookup-min"]), "prompt_lookup_max": max(least, 3),
            }  # fmt: skip
        if given.get("drafts-by-batch-size") and drafts:
            few, many = min(2, given["max-num-seqs"] - 1), given["max-num-seqs"]
            table = [(1, few, given["num-speculative-tokens"]), (few + 1, many, 0)]
            drafts["speculative"]["num_speculative_tokens_per_batch_size"] = table
        with replaced(models, "_without_weights", partial(_without_weights, models._without_weights, given)):
            made = self._made(rank, text, whole, extra, drafts)
        if self.group.world_size > 1:
            made._groups |= dict.fromkeys(("_TP", "_WORLD"), self.group)
        return made

    def _made(self, rank: int, text: Any, whole: Any, extra: Any, drafts: Any) -> Worker:
        given, config = self.set, import_module("vllm.config")
        return Worker(
            text, backend=BACKENDS[given["attention-backend"]], dtype=given["dtype"], page_size=given["block-size"], rank=rank,
            tp=given["tensor-parallel-size"], dcp=given["decode-context-parallel-size"],
            interleave=given["cp-kv-cache-interleave-size"], dcp_group=self.group if given["decode-context-parallel-size"] > 1
            else None, max_requests=given["max-num-seqs"], max_tokens=given["max-num-batched-tokens"],
            context=given["max-model-len"], kv_cache_dtype=given["kv-cache-dtype"], layout=given["layout"],
            skip_layers=given["kv-cache-dtype-skip-layers"], graphs=given["cudagraph-mode"],
            capability=tuple(given["capability"]),
            model_config={"disable_cascade_attn": given["disable-cascade-attn"]},
            cache={
                "num_gpu_blocks_override": given["num-gpu-blocks"],
                "enable_prefix_caching": given["enable-prefix-caching"], **whole,
            },
            scheduler={
                "enable_chunked_prefill": given["enable-chunked-prefill"], "async_scheduling": given["async-scheduling"],
            },
            vllm={
                "load_config": config.LoadConfig(load_format="attention", model_loader_extra_config=extra),
                **lora.config(given),
            },
            **drafts,
        )  # fmt: skip

    def _register(self) -> None:
        registry: Any = import_module("vllm.model_executor.models.registry").ModelRegistry
        windows = (None, None) if self.set["windows"] == "all" else WINDOWS[self.set["windows"]]
        here = lambda: self.ranks[self.group.rank_in_group]  # noqa: E731
        states = recurrent.LAYERS[self.set["recurrent"]]
        more = bool(self.set["adapters"]), bool(self.set["images"])
        own = model.make(self.contents, here, windows, self.set["soft-cap"], self.set["sinks"], states, *more)
        registry.register_model(self._architecture, own)
        utils: Any = import_module("vllm.model_executor.model_loader.utils")
        getattr(utils, "_MODEL_ARCH_BY_HASH", {}).clear()  # the config has asked for the class of a model with images
        if self.set["speculative-method"] in drafter.OWN:
            self.draft_layer = len(windows) + states
            drafter.register(self.set, self._architecture, self.draft_layer, self.contents, here)

    def _construct(self) -> None:
        """What the engine core makes of what the workers' layers keep."""
        self.config = self.ranks[0].config
        specs = self.group.on_all(lambda rank: self.ranks[rank].runner.get_kv_cache_spec())
        configs, scheduled = self.group.on_first(lambda: self._planned(specs))
        if len(self.ranks) > 1:  # workers are processes of their own, which do not see what the engine core makes of its config
            self.config = copy.copy(self.config)
            self.config.cache_config = copy.copy(self.config.cache_config)
        cache = self.config.cache_config
        cache.num_gpu_blocks = scheduled.num_blocks
        cache.block_size = min(group.kv_cache_spec.block_size for group in scheduled.kv_cache_groups)
        if hasattr(self.config, "validate_block_size"):
            self.config.validate_block_size()
        sizes = engine_core.block_sizes(self.config, scheduled)
        engine_core.align(self.config, (*configs, scheduled), *sizes)
        self.group.on_all(lambda rank: self.ranks[rank].begin(configs[rank]))
        self.scheduler, self.hasher = self.group.on_first(lambda: engine_core.scheduler(self.config, scheduled, *sizes))

    def _planned(self, specs: list[dict[str, Any]]) -> tuple[list[Any], Any]:
        """The plan of the cache. How many blocks one request takes follows from the groups that the engine makes of the layers:
        where the pool is smaller, which the engine refuses, it grows until it is not, so that it is as tight as can be."""
        cache = self.config.cache_config
        while True:
            try:
                return engine_core.kv_cache_configs(self.config, specs, _MEMORY)
            except ValueError:
                if cache.num_gpu_blocks_override >= _MOST_BLOCKS:
                    raise
                cache.num_gpu_blocks_override += _MORE_BLOCKS

    def _all_prompts(self) -> list[list[int]]:
        texts: list[list[int]] = []  # with the answers, of which a later prompt may be the next turn; without images
        prompts: list[list[int]] = []
        requests = self.case["requests"]
        for at, request in enumerate(requests):
            text = [self.contents.word(position, 1000 + at) for position in range(request["prompt"])]
            if request["common"]:
                other, shared = request["common"]
                begin = texts[other][: min(shared, request["prompt"])]
                text[: len(begin)] = begin
            prompts.append(image.laid_over(text) if (image := _image(request)) else list(text))
            last = prompts[-1][-1]
            while len(text) < request["prompt"] + request["output"]:
                last = self.contents.next(last, len(text) - 1)
                text.append(last)
            texts.append(text)
        return prompts

    # steps

    def step(self) -> Step | None:
        scheduled = self.group.on_first(self._scheduled)
        if scheduled is None:
            return None
        self.steps += 1
        self._resume(scheduled)
        kinds, rows = self._expected(scheduled)
        alone = len(self.ranks) == 1
        ran = self.group.on_all(lambda rank: self.ranks[rank].run(scheduled if alone else copy.deepcopy(scheduled)))
        result, state = ran[0]
        step = self._compared(kinds, rows, [state for _, state in ran]) if state is not None else Step(["idle"])
        step.outputs += self._sampled(scheduled, result)
        if state is not None and any(rank.drafted for rank in self.ranks):
            step.outputs += self._drafted(scheduled, result, rows, [state for _, state in ran])
        self.under_way.append((scheduled, result))
        self.group.on_first(lambda: self._take(self._most_under_way()))
        if self.set["dummy-batches"] and not scheduled.total_num_scheduled_tokens:
            self.group.on_all(lambda rank: self.ranks[rank].idle())
        return step

    def _scheduled(self) -> Any:
        self._admit()
        if not self.scheduler.has_requests() and not self.waiting:
            return None
        return self.scheduler.schedule()

    def _most_under_way(self) -> int:
        """With async scheduling the scheduler is a step ahead of results, in a pipeline one for each stage."""
        if not self.config.scheduler_config.async_scheduling:
            return 0
        most: int = getattr(self.config, "max_concurrent_batches", 2)
        return most - 1

    def _take(self, left: int) -> None:
        while len(self.under_way) > left:
            self._taken(*self.under_way.pop(0))

    def _taken(self, scheduled: Any, result: Any) -> None:
        self.scheduler.update_from_output(scheduled, result)
        if self.config.speculative_config is None or self.config.scheduler_config.async_scheduling:
            return
        take = getattr(self.ranks[0].runner, "take_draft_token_ids", None)  # up to 0.10.1 they are in the result
        drafts = take() if take else None
        if drafts is not None:
            self.scheduler.update_draft_token_ids(drafts)

    def _admit(self) -> None:
        while self.waiting and self.case["requests"][self.waiting[0]]["arrives"] <= self.steps:
            at = self.waiting.pop(0)
            asked = self.case["requests"][at]
            sampling: Any = import_module("vllm.sampling_params").SamplingParams
            cls: Any = import_module("vllm.v1.request").Request
            given = dict(
                request_id=f"request-{at}", prompt_token_ids=list(self._prompts[at]), pooling_params=None,
                sampling_params=sampling(max_tokens=asked["output"], ignore_eos=True, temperature=0.0),
                eos_token_id=None, block_hasher=self.hasher, lora_request=lora.request(asked.get("adapter", 0)),
                mm_features=[image.feature()] if (image := _image(asked)) else None,
            )  # fmt: skip
            request = cls(**{name: given[name] for name in signature(cls.__init__).parameters if name in given})
            salts = partial(model.salts_for, asked.get("adapter", 0), _image(asked))
            self.requests[request.request_id] = _Request(request, list(self._prompts[at]), salts)
            self.scheduler.add_request(request)

    def _resume(self, scheduled: Any) -> None:
        """Who is new, or comes back after a preemption: what of it the cache has already."""
        for new in scheduled.scheduled_new_reqs:
            self.requests[new.req_id].computed = new.num_computed_tokens
        cached = scheduled.scheduled_cached_reqs
        if hasattr(cached, "resumed_req_ids"):
            resumed = cached.resumed_req_ids
        else:  # up to 0.11.0
            resumed = {name for name, back in zip(cached.req_ids, cached.resumed_from_preemption) if back}
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens):
            if name in resumed:
                self.requests[name].computed = computed

    def _expected(self, scheduled: Any) -> tuple[list[str], dict[str, tuple[int, list[int]]]]:
        """Kinds of the rows; request -> (position of its first row, all its words up to the last row)."""
        kinds, rows = set(), {}
        begun = {new.req_id for new in scheduled.scheduled_new_reqs}
        drafts = scheduled.scheduled_spec_decode_tokens
        for name, count in scheduled.num_scheduled_tokens.items():
            one = self.requests[name]
            words = list(one.known)
            if spec := len(drafts.get(name, ())):
                words = words[: one.computed + count - spec] + self.ranks[0].drafts(scheduled, name)
            words = words[: one.computed + count]
            rows[name] = (one.computed, words)
            if spec:
                kinds.add("verify")
            elif one.computed + count >= len(one.known) and one.computed >= one.prompt:
                kinds.add("decode")
            elif name in begun and one.computed:
                kinds.add("cached")
            elif one.computed or one.computed + count < one.prompt:
                kinds.add("chunk")
            else:
                kinds.add("fresh")
        return sorted(kinds), rows

    def _compared(self, kinds: list[str], rows: dict[str, tuple[int, list[int]]], states: list[Any]) -> Step:
        outputs = []
        for rank, state in zip(self.ranks, states):
            order = state.order
            tokens, positions, labels, read = [], [], [], []
            for name in order:
                start, words = rows[name]
                read += [not self.requests[name].over] * (len(words) - start)
                tokens += words[start:]
                positions += range(start, len(words))
                labels += [f"{name} at {at}" for at in range(start, len(words))]
            count = len(tokens)
            # Nobody reads what follows of a placeholder
            kept = [row for row, word in enumerate(tokens) if word >= 0 and read[row]]
            fed = [(tokens[row], positions[row]) for row in kept]
            if len(rank.ran) != len(rank.runner.model.layers):
                raise RuntimeError(f"{len(rank.ran)} layers ran in one step")
            for one in rank.ran:
                given = list(zip(one.tokens[kept].tolist(), one.positions[kept].tolist())) == fed
                made = state.metadata[recurrent.name_of(one.layer)]
                true, at = [], 0
                for name in order:
                    salts = self.requests[name].salts(len(rows[name][1]))
                    true.append(self._reference(one.layer, rank.worker, made, at, *rows[name], salts))
                    at += len(true[-1])
                true = torch.cat(true)
                out = one.out[:count].view(true.shape)
                within = self._within()
                name = recurrent.name_of(one.layer) + (f" of rank {rank.worker.rank}" if len(self.ranks) > 1 else "")
                compared = reference.compare(name, out[kept], true[kept], [labels[row] for row in kept], within)
                outputs.append(compared if given else model.strange(compared))
                if len(one.tokens) > count:
                    kinds = sorted({*kinds, "padded"})
            if state.replayed:
                kinds = sorted({*kinds, "replayed"})
        made = [(state.metadata, state.slots) for state in states]
        return Step(kinds, outputs, reference.digest(made))

    def _reference(
        self, layer: Any, worker: Worker, made: Any, row: int, start: int, words: list[int], salts: Any
    ) -> Any:  # fmt: skip
        """What a layer returns for the last words of a request, from `start` on. made: its metadata of the step. row: of the
        batch, that the request begins at."""
        if recurrent.is_recurrent(layer):
            return recurrent.reference(layer, worker, self.contents, start, words, salts)
        dtype = self.config.model_config.dtype
        every = self.contents.inputs(layer, worker, torch.tensor(words), torch.arange(len(words)), salts)
        q, k, v = (x.to(dtype).double() for x in every)
        q, where = q[start:], range(start, len(words))
        if self.mla:
            up = (k[:, 0] @ layer.kv_b_proj.weight.double().t()).view(len(words), layer.num_heads, -1)
            rope = v
            nope, v = up.split([layer.qk_nope_head_dim, layer.v_head_dim], -1)
            k = torch.cat([nope, rope.expand(-1, layer.num_heads, -1)], -1)
            return reference.attention(q, k, v, where, scale=q.shape[-1] ** -0.5)
        index = int(layer.layer_name.split(".")[2])
        drafts = index == self.draft_layer
        if "fp8" in layer.kv_cache_dtype:
            scales = dict.fromkeys(_SCALES, 1.0)
            if not (drafts and self.set["speculative-method"] == "eagle"):
                scales |= _scales(self.set)
            # under context parallelism the keys of new tokens are read apart from the cache, but by FlashInfer's decodes
            ranks = self.set["decode-context-parallel-size"]
            cached = start if ranks > 1 and not _decodes(made, row) else len(words)
            k, v = (
                torch.cat([kernels.quantised(x[:cached], scales[name]).double() * scales[name], x[cached:]])
                for x, name in ((k, "k_scale"), (v, "v_scale"))
            )
            if _quantises(layer, made, row):
                q = kernels.quantised(q, scales["q_scale"]).double() * scales["q_scale"]
        scale = layer.head_size**-0.5
        if drafts:
            window = WINDOW if self.set["draft-window"] or self.set["windows"] == "all" else None
            return reference.attention(q, k, v, where, scale=scale, window=window)
        sinks = self.contents.sinks(index, worker) if self.set["sinks"] else None
        return reference.attention(
            q, k, v, where, scale=scale, window=WINDOWS[self.set["windows"]][index], soft_cap=self.set["soft-cap"], sinks=sinks,
        )  # fmt: skip

    def _within(self) -> Any:
        right, wrong = reference.tolerance(self.config.model_config.dtype)
        more = 2 if self.mla else 1  # query and value go through a projection each, whose results are rounded, too
        return Tolerance(more * right, more * wrong)

    def _drafted(self, scheduled: Any, result: Any, rows: dict[str, tuple[int, list[int]]], states: list[Any]) -> list[Output]:
        """What the drafter's layer returned behind this step: of each row that stands, and of each draft."""
        got, drafts, told = dict(zip(result.req_ids, result.sampled_token_ids)), scheduled.scheduled_spec_decode_tokens, {}
        for name, (start, words) in rows.items():
            rejected = len(drafts.get(name, ())) + 1 - len(got[name]) if got[name] else 0
            count = len(words) - start
            one, stand = self.requests[name], words[: len(words) - rejected]
            salts = one.salts(len(stand)).tolist()
            told[name] = drafter.Rows(start, stand, one.known, count, bool(got[name]), salts)
        outputs = []
        for rank, state in zip(self.ranks, states):
            true = partial(self._reference_of_draft, rank, state)
            order, limit = state.order, self.set["max-model-len"]
            made = drafter.compare(rank.drafted, order, told, self.contents, limit, true, self._within())
            for output in made:
                output.name += f" of rank {rank.worker.rank}" if len(self.ranks) > 1 else ""
            outputs += made
        return outputs

    def _reference_of_draft(self, rank: _Rank, state: Any, layer: Any, *of_a_request: Any) -> Any:
        return self._reference(layer, rank.worker, state.metadata[layer.layer_name], *of_a_request)

    def _sampled(self, scheduled: Any, result: Any) -> list[Output]:
        """What each request got; its keys are in the cache up to the last word that was accepted. Returns those that got
        nothing, though their rows reached the last word that is known: a server never answers them."""
        silent = []
        for name, got in zip(result.req_ids, result.sampled_token_ids):
            one = self.requests[name]
            if got:
                one.known += got
                one.computed = len(one.known) - 1
            else:
                one.computed += scheduled.num_scheduled_tokens[name]
                if one.computed >= len(one.known) and not one.over:
                    silent.append(Output("sampler", math.inf, "", self._within(), f"{name}, which gets no token"))
        return silent


def _without_weights(former: Callable[[], type], given: dict[str, Any]) -> type:
    """The class that the registry has while the config is made."""
    made = former()
    for name, trait in (lora.traits() if given["adapters"] else {}).items():
        setattr(made, name, trait)
    return images.of(made) if given["images"] else made


def _image(request: Any) -> images.Image | None:
    return images.Image(*request["image"]) if request.get("image") else None


def _scales(given: dict[str, Any]) -> dict[str, float]:
    """Those that the checkpoint brings."""
    left_out = {"none": list(_SCALES), "keys-values": ["q_scale"], "checkpoint": []}[given["scales"]]
    return {name: scale for name, scale in _SCALES.items() if name not in left_out}


def _tensors(caches: Any) -> Iterator[Any]:
    """Those of each layer: a recurrent one has several."""
    for cache in caches:
        yield from (cache,) if isinstance(cache, torch.Tensor) else _tensors(cache)


def _decodes(metadata: Any, row: int) -> bool:
    return row < int(getattr(metadata, "num_decode_tokens", 0))


def _quantises(layer: Any, metadata: Any, row: int) -> bool:
    """Whether the query of that row of the batch is FP8: the layer makes it so, or FlashInfer's implementation does."""
    kind = "decode" if _decodes(metadata, row) else "prefill"
    quantised = getattr(layer, "query_quant", None) is not None  # layers with MLA have none in some releases
    return quantised or getattr(metadata, f"q_data_type_{kind}", None) == torch.float8_e4m3fn


def _lost_row(former: Any, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    """The last row of a launch is not written."""
    kept = out[-1].clone() if out is not None else None
    result = former(*args, out=out, **kwargs)
    if kept is not None:
        out[-1] = kept
    return result


def _other_window(former: Any, *args: Any, window: Any = None, **kwargs: Any) -> Any:
    return former(*args, window=None if window is None else window + 1, **kwargs)


def _no_scale(former: Any, x: Any, scale: Any) -> Any:
    return former(x, torch.ones_like(torch.as_tensor(scale)))


def _late_slot(former: Any, key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any, *more: Any) -> Any:
    """A token's key and value go to the place of the next one."""
    return former(key, value, key_cache, value_cache, torch.where(slots >= 0, slots + 1, slots), *more)


def _other_page(former: Any, *args: Any, k: Any, block_table: Any = None, **kwargs: Any) -> Any:
    """The first page of each request is another one."""
    if block_table is not None:
        block_table = block_table.clone()
        block_table[:, 0] = (block_table[:, 0] + 1) % len(k)
    return former(*args, k=k, block_table=block_table, **kwargs)


def _not_causal(former: Any, *args: Any, causal: Any = False, scheduler_metadata: Any = None, **kwargs: Any) -> Any:
    """Without the schedule, which is too long for such a launch: the kernel would refuse it before anything is compared."""
    return former(*args, causal=False, **kwargs)


def _shifted(former: Any, *args: Any, **kwargs: Any) -> Any:
    """Each token of an image gets what the one behind it should."""
    return [encoded.roll(-1, 0) for encoded in former(*args, **kwargs)]


def _neighbours(former: Any, *args: Any, **kwargs: Any) -> Any:
    """Rows have the adapter of the row before."""
    prompts, tokens, requests = former(*args, **kwargs)
    return prompts, tokens[-1:] + tokens[:-1], requests


def _flash(other: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    flash = "vllm.v1.attention.backends.flash_attn"
    return lambda: broken.broken(import_module(flash), "flash_attn_varlen_func", other)


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    **broken.MUTATIONS,
    "window wrong by one": lambda: broken.broken(reference, "attention", _other_window),
    "a row is lost": _flash(_lost_row),
    "a scale is left out": lambda: broken.broken(kernels, "quantised", _no_scale),
    "no soft cap": _flash(lambda former, *args, softcap=0.0, **kwargs: former(*args, **kwargs)),
    "no sinks": _flash(lambda former, *args, s_aux=None, **kwargs: former(*args, **kwargs)),
    "not causal": _flash(_not_causal),
    "the mask is shifted": lambda: broken.broken(
        kernels, "attend", lambda former, q, k, v, at, *more: former(q, k, v, at + 1, *more)
    ),
    "another page": _flash(_other_page),
    "adapters are in no block's hash": lambda: broken.broken(
        import_module("vllm.v1.core.kv_cache_utils"), "_gen_lora_extra_hash_keys", lambda former, request: []
    ),
    "adapters one row on": lambda: broken.broken(
        import_module("vllm.v1.worker.gpu.lora_utils").LoraState, "make_lora_inputs", _neighbours
    ),
    "adapters one row on, former model runner": lambda: broken.broken(
        import_module("vllm.v1.worker.gpu_input_batch").InputBatch, "make_lora_inputs", _neighbours
    ),
    "images are in no block's hash": lambda: broken.broken(
        import_module("vllm.v1.core.kv_cache_utils"), "_gen_mm_extra_hash_keys", lambda former, *args: ([], args[-1])
    ),
    "images one token on": lambda: broken.broken(
        import_module("vllm.v1.worker.gpu.mm.encoder_runner").EncoderRunner, "execute_mm_encoder", _shifted
    ),
    "keys one place on": lambda: broken.broken(
        import_module("vllm.v1.attention.backends.flash_attn"), "reshape_and_cache_flash", _late_slot
    ),
}
#: settings in which a mutation can be seen
SEEN_IN: dict[str, dict[str, Any]] = {
    **broken.SEEN_IN,
    "window wrong by one": {"windows": "all"},
    "a scale is left out": {"kv-cache-dtype": "fp8", "scales": "checkpoint"},
    "no soft cap": {"soft-cap": 3.0},
    "no sinks": {"sinks": True},
    "adapters are in no block's hash": {"adapters": 3},
    "adapters one row on": {"adapters": 3},
    "adapters one row on, former model runner": {"adapters": 3, "former-model-runner": True},
    "images are in no block's hash": {"images": True},
    "images one token on": {"images": True},
}
FAULTS = broken.FAULTS
