"""vLLM's scheduler and its cache manager for a hybrid model, by their own constructors and from a real config: 0.15.0-0.33.0.

    with Engine(drafts=2, max_tokens=64) as engine:
        request = engine.add(tokens, output=20)
        step = engine.schedule()                        # the engine's SchedulerOutput
        engine.finish(step, {request.request_id: [7]})  # the tokens that each request of the step got

As in the engine core: block sizes, groups of layers, hashes and the scheduler's class are what the release makes of the config.
The layers are given by their specs: attention's is its own, that of Gated DeltaNet or Mamba2 the engine's common one for the
shape of a state that the model's class says, and a head for MTP has attention. No runner and no kernel runs: who wants them
to, does it between `schedule` and `finish`. Drafts are proposed at every step of a decode, none are while a prompt is computed.

    engine.step(run)  # both, and between them `run` of the SchedulerOutput, which returns what `finish` gets behind it

With `ahead`, `step` is the engine core's with async scheduling: the scheduler does not know yet what the steps under way give.

A proof derives from `Served`. A case is how an `Engine` is launched, and what is asked of the server:

    bug = tuple(case(arrivals({3: (1,)}), drafts=2, mode=mode) for mode in ("none", "align"))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, get_args

from attnfix.patches.lab.proof import Cases, Observation

from . import kernels
from .construction import Worker
from .kernels import found
from .models import NEMOTRON_H, QWEN3_NEXT, own_classes

__all__ = ["NEMOTRON_H", "QWEN3_NEXT", "SCHEDULER", "Case", "Engine", "Served", "case", "modes"]

SCHEDULER = "vllm.v1.core.sched.scheduler"

_UTILS = "vllm.v1.core.kv_cache_utils"
#: How a layer with a recurrent state is called by the engine: in its enumeration, and as plain text before there was one
_KINDS = {"Qwen3NextForCausalLM": ("GDN_ATTN", "gdn_attention"), "NemotronHForCausalLM": ("MAMBA2", "mamba2")}
_MEMORY = 1 << 30  # of which the config takes as many blocks as it says


class Engine:
    """drafts: tokens of MTP, 0 for none. drafter: how the one layer of another drafter is made. caching: of
    prefixes; mode: the same, and how it keeps states, as `mamba_cache_mode` has it. blocks: of the pool. max_tokens: of a step;
    context: of a request. brought: the engine's own connector for benchmarks brings all of a prompt but the last token. `more`
    as for a `Worker`.

    ahead: whether `step` schedules ahead of results: by one step, in a pipeline by one for each stage.
    state_layer: "module:Class" whose own spec the layers with a state have, where it is not the common one."""

    def __init__(
        self,
        model: dict[str, Any] = QWEN3_NEXT,
        *,
        drafts: int = 0,
        caching: bool = True,
        mode: str | None = None,
        blocks: int = 4096,
        max_tokens: int = 1024,
        context: int = 1024,
        backend: str = "flash_attn.FlashAttentionBackend",
        drafter: Mapping[str, Any] | None = None,
        ahead: bool = False,
        brought: bool = False,
        state_layer: str = "",
        **more: Any,
    ):
        self.model, self.drafts, self.drafter, self.ahead, self.state_layer = model, drafts, drafter, ahead, state_layer
        if ahead:
            more["scheduler"] = {"async_scheduling": True, **more.get("scheduler", {})}
        if drafts:
            more["speculative"] = {"method": "mtp", "num_speculative_tokens": drafts, **more.get("speculative", {})}
        if mode is not None:
            caching, more["cache"] = mode != "none", {"mamba_cache_mode": mode, **more.get("cache", {})}
        if brought:
            transfer: Any = import_module("vllm.config").KVTransferConfig
            more["vllm"] = {"kv_transfer_config": transfer(kv_connector="DecodeBenchConnector", kv_role="kv_both")}
        cache = {"enable_prefix_caching": caching, "num_gpu_blocks_override": blocks, **more.pop("cache", {})}
        self.worker = Worker(model, backend=backend, max_tokens=max_tokens, context=context, cache=cache, **more)
        self.config = self.worker.config
        self.under_way: list[Any] = []  # (step, what it gives) …, the oldest first
        self._count = 0

    def __enter__(self) -> Engine:
        self.worker.__enter__()
        try:
            self._construct()
        except BaseException:  # the engine refuses
            self.worker.__exit__()
            raise
        return self

    def _construct(self) -> None:
        utils: Any = import_module(_UTILS)
        planning: Any = found("vllm.v1.core.kv_cache_planning") or utils  # a module of its own from 0.33.0
        specs = [self._specs()]
        groups = [planning.get_global_kv_cache_groups(self.config, specs)] if planning is not utils else []
        if hasattr(planning, "get_kv_cache_configs"):
            configs = planning.get_kv_cache_configs(self.config, specs, [_MEMORY], *groups)
            self.kv_cache_config = utils.generate_scheduler_kv_cache_config(configs)
        else:  # up to 0.10.2
            self.kv_cache_config = utils.get_kv_cache_config(self.config, *specs, _MEMORY)
        sizes = {group.kv_cache_spec.block_size for group in self.kv_cache_config.kv_cache_groups}
        self.config.cache_config.block_size = min(sizes)
        self.config.cache_config.num_gpu_blocks = self.kv_cache_config.num_blocks
        block_size = hash_block_size = self.config.cache_config.block_size
        if hasattr(utils, "resolve_kv_cache_block_sizes"):  # from 0.20.0
            block_size, hash_block_size = utils.resolve_kv_cache_block_sizes(self.kv_cache_config, self.config)
        if hasattr(utils, "resolve_cache_hit_alignment_tokens"):  # from 0.32.0
            aligned = utils.resolve_cache_hit_alignment_tokens(self.kv_cache_config, self.config, block_size, hash_block_size)
            for about in self.kv_cache_config, self.config.cache_config:  # the scheduler's and the workers'
                about.hash_block_size, about.cache_hit_alignment_tokens = hash_block_size, aligned
        hashes: Any = found("vllm.utils.hashing") or import_module("vllm.utils")  # a module of its own from 0.11.1
        hash_of = hashes.get_hash_fn_by_name(self.config.cache_config.prefix_caching_hash_algo)
        utils.init_none_hash(hash_of)
        self._hasher = utils.get_request_block_hasher(hash_block_size, hash_of)
        structured: Any = import_module("vllm.v1.structured_output").StructuredOutputManager
        cls = getattr(self.config.scheduler_config, "get_scheduler_cls", _scheduler)()  # up to 0.11.0 a path, of the common one
        given = {
            "block_size": block_size,
            "hash_block_size": hash_block_size,
            "structured_output_manager": structured(self.config),
        }
        self.scheduler = cls(self.config, self.kv_cache_config, **_known(_scheduler().__init__, given))

    def __exit__(self, *error: Any) -> None:
        self.worker.__exit__(*error)

    def add(self, tokens: Sequence[int], output: int, features: Sequence[Any] | None = None, **more: Any) -> Any:
        """A request with this prompt that wants so many tokens. features: the engine's, one for each image. `more` goes to the
        request: one with the `request_id` of another that is `resumable` updates that session, or ends it."""
        self._count += 1
        sampling: Any = import_module("vllm.sampling_params").SamplingParams(max_tokens=output, ignore_eos=True)
        cls: Any = import_module("vllm.v1.request").Request
        given = dict(
            request_id=f"request-{self._count}", prompt_token_ids=list(tokens), sampling_params=sampling, pooling_params=None,
            eos_token_id=None, block_hasher=self._hasher, mm_features=features, multi_modal_kwargs=None,
            multi_modal_hashes=None, multi_modal_placeholders=None,
        )  # fmt: skip
        request = cls(**_known(cls.__init__, given | more))
        self.scheduler.add_request(request)
        return request

    def abort(self, request: Any) -> None:
        """As a client that goes away does."""
        status: Any = import_module("vllm.v1.request").RequestStatus
        self.scheduler.finish_requests(request.request_id, status.FINISHED_ABORTED)

    def step(self, run: Callable[[Any], tuple[Any, ...]]) -> Any:
        """One step of the engine core: what was scheduled."""
        step = self.schedule()
        self.under_way.append((step, *run(step)))
        while len(self.under_way) > self._most_ahead:
            self.finish(*self.under_way.pop(0))
        return step

    @cached_property
    def _most_ahead(self) -> int:
        """Steps of which nothing is known yet. The engine looks for plugins whenever its config is asked."""
        return getattr(self.config, "max_concurrent_batches", 2) - 1 if self.ahead else 0

    def schedule(self) -> Any:
        return self.scheduler.schedule()

    def finish(self, step: Any, sampled: Mapping[str, Sequence[int]], refused: Collection[str] = ()) -> Any:
        """What the runner says of a step: a request that has got no token is still at its prompt. Each other one has drafts, as
        many as the step asks for; a grammar has refused those of `refused`."""
        ids = list(step.num_scheduled_tokens)
        output: Any = import_module("vllm.v1.outputs")
        given = dict(
            req_ids=ids, req_id_to_index={name: at for at, name in enumerate(ids)}, logprobs=None, prompt_logprobs_dict={},
            sampled_token_ids=[_Tokens(sampled.get(name, ())) for name in ids], pooler_output=[], spec_token_ids=None,
        )  # fmt: skip
        result = self.scheduler.update_from_output(step, output.ModelRunnerOutput(**_known(output.ModelRunnerOutput, given)))
        if self.drafts and not self.config.scheduler_config.async_scheduling:
            table = getattr(self.scheduler, "dynamic_sd_lookup", None)  # how many for which batch
            count = self.drafts if table is None else step.num_spec_tokens_to_schedule
            drafts = [[1] * count if sampled.get(name) and name not in refused else [] for name in ids]
            self.scheduler.update_draft_token_ids(output.DraftTokenIds(ids, drafts))
        return result

    def _specs(self) -> dict[str, Any]:
        """What each layer keeps in the cache."""
        platform: Any = import_module("vllm.platforms").current_platform
        attention = self.worker.layer()
        if hasattr(type(platform), "update_block_size_for_backend"):  # from 0.18.0, once the layers are there
            platform.update_block_size_for_backend(self.config)
        spec = self.worker.spec(attention)
        kinds = self.config.model_config.hf_text_config.layer_types
        specs = {
            f"model.layers.{at}": self._state_spec() if kind == "linear_attention" else spec for at, kind in enumerate(kinds)
        }
        if self.drafter is not None:
            specs[f"model.layers.{len(kinds)}"] = self.worker.spec(self.worker.layer(len(kinds), **self.drafter))
        return {**specs, "mtp.layers.0": spec} if self.drafts else specs

    def _state_spec(self) -> Any:
        """Of a layer with a recurrent state."""
        (name, own), *_ = own_classes(self.model).items()
        base: Any = import_module("vllm.model_executor.layers.mamba.abstract").MambaBase
        kinds: Any = getattr(found("vllm.v1.attention.backends.registry"), "MambaAttentionBackendEnum", None)
        by_name = isinstance(_field_default(import_module("vllm.v1.kv_cache_interface").MambaSpec, "mamba_type"), str)
        kind, text = _KINDS[name]
        answers = dict(
            get_state_shape=lambda *_: own.get_mamba_state_shape_from_config(self.config),
            get_state_dtype=lambda *_: own.get_mamba_state_dtype_from_config(self.config),
            mamba_type=text if by_name else getattr(kinds, kind), is_kv_cache_tp_replicated=False,
        )  # fmt: skip
        if not self.state_layer:
            return base.get_kv_cache_spec(SimpleNamespace(**answers), self.config)
        module, _, cls = self.state_layer.partition(":")
        layer: Any = object.__new__(type("Layer", (getattr(import_module(module), cls),), answers))
        return layer.get_kv_cache_spec(self.config)


class _Tokens(list):
    """Of a request. In 0.11.1 and 0.11.2 they are an array."""

    tolist = list.copy


def _scheduler() -> Any:
    return import_module("vllm.v1.core.sched.scheduler").Scheduler


def _known(function: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """As much of it as the function takes in this release."""
    return {name: values[name] for name in signature(function).parameters if name in values}


def _field_default(cls: Any, name: str) -> Any:
    return next(field.default for field in fields(cls) if field.name == name)


def modes() -> list[str]:
    """In which a server of this release can keep states for other requests: "align", and up to 0.30.0 "all"."""
    known = get_args(getattr(import_module("vllm.config.cache"), "MambaCacheMode", ""))
    return [mode for mode in ("align", "all") if mode in known]


@dataclass(frozen=True)
class Case:
    """talk: what is asked of `Served.kind`. launch: options of the `Engine`. where: the place that a
    release has, written as `Cases.needs`."""

    talk: Callable[[Any], None]
    launch: Mapping[str, Any]
    where: str = ""


def case(talk: Callable[[Any], None], where: str = "", **launch: Any) -> Case:
    return Case(talk, launch, where)


class Served(Cases):
    """Base of the proofs: a case is a server and what is asked of it."""

    modules: tuple[str, ...] = (SCHEDULER,)
    #: What runs the steps of an entered engine, made of it and a seed; `observe` says what was seen
    kind: Any

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        with Engine(**case.launch) as engine:
            server = self.kind(engine, seed)
            case.talk(server)
            seen: Observation = server.observe()
        return seen

    def _run(self, cases: tuple[Case, ...], seed: int) -> Iterator[Observation]:
        """Those of modes that the release has."""
        known = (None, "none", *modes())
        return super()._run(tuple(case for case in cases if case.launch.get("mode") in known), seed)
