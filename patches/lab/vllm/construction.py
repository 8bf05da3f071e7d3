"""Builds vLLM's own objects, by its own constructors and from real configs, on a machine without a GPU: 0.10.0-0.33.0.

    worker = Worker(DENSE, backend="flashinfer.FlashInferBackend", tp=2, dcp=2, rank=1)
    with worker:
        layer = worker.layer(0)             # Attention or MLAAttention, with the backend's impl in `layer.impl`
        builder = worker.builder([layer])   # the backend's metadata builder, from the layer's own spec
        metadata = builder.build(0, worker.batch(context=(36, 1), new=(1, 5)))

What a machine without a GPU cannot do, and who does it here (`kernels`):
- The platform is vLLM's unspecified one, which says it has a GPU of `capability` with 132 multiprocessors, and answers with the
  backend that the caller names. `is_cuda()` stays false. What CUDA's platform would refuse (head sizes, a backend for that GPU)
  nobody refuses, and what it sets by default is not set: block size, CUDA graphs, cascade attention are what the caller says.
- The process groups are `Alone`, or what the caller puts in their place: ranks and sizes are right, collectives raise.
- FlashAttention 2 and 3, FlashMLA and FlashInfer have their names and no code: a call raises `OnGpuOnly` (of FlashInfer, where
  it is not installed, what `attnfix.prove.stubs` makes of it). Who runs one puts a stand-in at its entry point.
- Memory that is to be pinned, or on a GPU, is ordinary memory.
- The model has no weights: a layer's are what its constructor leaves, and the registry's class for it is empty.
- The scheduler and the model runner do not run: `batch` makes what the runner would, from lengths; slots are all 0.
Not constructed: FlashMLA of 0.10.2, whose module imports CUDA's platform and with it the compiled `vllm._C`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from importlib import import_module
from inspect import signature
from typing import Any, TypeVar

from attnfix.patches.lab.proof import cumulative

from . import kernels
from .kernels import found
from .models import DENSE, MLA, folder_of

__all__ = ["DENSE", "MLA", "Alone", "Worker"]

_BACKENDS = "vllm.v1.attention.backends"
_GROUPS = {"_TP": "tp", "_DCP": "dcp", "_PP": "", "_DP": "", "_EP": "", "_PCP": "", "_WORLD": "tp"}  # whose size each has


class Alone:
    """A group of `size` ranks as `rank` sees it, without the others: whoever talks to them gets an error."""

    def __init__(self, size: int = 1, rank: int = 0):
        self.world_size, self.rank_in_group, self.rank, self.local_rank = size, rank, rank, rank
        self.ranks = list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(f"rank {self.rank_in_group} of {self.world_size} is alone: {name}")


_Entered = TypeVar("_Entered", bound="Worker")


class Worker:
    """One rank of a server, as far as its attention goes. Enter it to construct, and to build metadata.

    model: `config.json` as a dict. backend: a class under `vllm.v1.attention.backends`, e.g. "mla.flashmla.FlashMLABackend".
    tp, dcp: sizes of the groups; dcp divides tp, and for attention with KV heads the engine wants tp > KV heads. interleave:
    tokens in a row that lie on one rank. page_size: tokens of a block. kv_cache_dtype, skip_layers: as on the command line.
    layout: of the cache, NHD or HND. graphs: a name of CUDAGraphMode. capability: what the platform says of its GPU, None for
    no answer. dcp_group: stands for the other ranks. max_tokens: of a step; context: of a request, as many unless it is given.
    `more` goes to the parts of the config by name: model_config={…}, cache={…}, parallel, scheduler, compilation, attention,
    speculative, vllm; a field that a release does not have raises TypeError there.
    """

    def __init__(
        self,
        model: dict[str, Any] = DENSE,
        *,
        backend: str,
        dtype: str = "bfloat16",
        rank: int = 0,
        tp: int = 1,
        dcp: int = 1,
        interleave: int = 1,
        page_size: int = 16,
        max_requests: int = 8,
        max_tokens: int = 1024,
        context: int | None = None,
        kv_cache_dtype: str = "auto",
        skip_layers: Sequence[str] = (),
        layout: str = "NHD",
        graphs: str | None = None,
        capability: tuple[int, int] | None = (9, 0),
        dcp_group: Any = None,
        **more: dict[str, Any],
    ):
        self.backend_path, self.rank, self.sizes = f"{_BACKENDS}.{backend}", rank, {"tp": tp, "dcp": dcp}
        self.interleave, self.capability, self.layout, self.graphs = interleave, capability, layout, graphs
        self._groups = {name: Alone(self.sizes.get(of, 1), rank % self.sizes.get(of, 1)) for name, of in _GROUPS.items()}
        if dcp_group is not None:
            self._groups["_DCP"] = dcp_group
        self._entered = ExitStack()
        kernels.stand_in()
        with self._platform():
            self.config = _config(
                model, dtype, {"tensor_parallel_size": tp, **_dcp(dcp, interleave)}, max_requests, max_tokens,
                context or max_tokens,
                {"block_size": page_size, "cache_dtype": kv_cache_dtype, **_skipped(skip_layers)}, graphs, more,
            )  # fmt: skip
        if hasattr(self.config.cache_config, "kv_cache_layout"):  # from 0.30 the engine core says it to the workers
            self.config.cache_config.kv_cache_layout = layout

    def __enter__(self: _Entered) -> _Entered:
        config: Any = import_module("vllm.config")
        self._entered.enter_context(self._platform())
        self._entered.enter_context(config.set_current_vllm_config(self.config))
        parallel: Any = import_module("vllm.distributed.parallel_state")
        for name in [name for name in self._groups if hasattr(parallel, name)]:
            self._entered.enter_context(_set(parallel, name, self._groups[name]))
        utils: Any = import_module(f"{_BACKENDS}.utils")
        if hasattr(utils, "_KV_CACHE_LAYOUT_OVERRIDE"):  # what `set_kv_cache_layout` sets
            self._entered.enter_context(_set(utils, "_KV_CACHE_LAYOUT_OVERRIDE", self.layout))
        self._entered.enter_context(kernels.on_cpu())
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.close()

    def layer(self, index: int = 0, **more: Any) -> Any:
        """Layer `index` of the model, as its forward pass knows it; `more` goes to the layer's constructor."""
        name, text = f"model.layers.{index}.self_attn.attn", self.config.model_config.hf_text_config
        heads = text.num_attention_heads // self.sizes["tp"]
        shared = {"prefix": name, "cache_config": self.config.cache_config, **more}
        if not self.config.model_config.use_mla:
            size = text.head_dim
            shared = {"num_kv_heads": max(1, text.num_key_value_heads // self.sizes["tp"]), **shared}
            return self._in_dtype(_attention("Attention"), heads, size, size**-0.5, **shared)
        nope, rope, v, rank = text.qk_nope_head_dim, text.qk_rope_head_dim, text.v_head_dim, text.kv_lora_rank
        mla = dict(q_lora_rank=text.q_lora_rank, kv_lora_rank=rank, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=v)
        shared = {"kv_b_proj": self._kv_b_proj(f"model.layers.{index}.self_attn.kv_b_proj"), **mla, **shared}
        scale = (nope + rope) ** -0.5
        try:
            cls = _attention("MLAAttention")
        except AttributeError:  # up to 0.11
            old = dict(num_kv_heads=1, use_mla=True, qk_head_dim=nope + rope)
            old = {name: old[name] for name in old if name != "qk_head_dim" or self._old_impl_takes(name)}
            return self._in_dtype(_attention("Attention"), heads, rank + rope, scale, **old, **shared)
        return self._in_dtype(cls, heads, scale, **shared)

    def _old_impl_takes(self, name: str) -> bool:
        return name in signature(import_module(f"{_BACKENDS}.mla.common").MLACommonImpl.__init__).parameters

    def _kv_b_proj(self, prefix: str) -> Any:
        linear: Any = import_module("vllm.model_executor.layers.linear")
        text = self.config.model_config.hf_text_config
        columns = text.num_attention_heads * (text.qk_nope_head_dim + text.v_head_dim)
        return self._in_dtype(linear.ColumnParallelLinear, text.kv_lora_rank, columns, bias=False, prefix=prefix)

    def _in_dtype(self, make: Any, *args: Any, **kwargs: Any) -> Any:
        """Models are constructed with torch's default dtype set to theirs."""
        import torch

        former = torch.get_default_dtype()
        torch.set_default_dtype(self.config.model_config.dtype)
        try:
            return make(*args, **kwargs)
        finally:
            torch.set_default_dtype(former)

    def spec(self, layer: Any) -> Any:
        """What the engine keeps of the layer in its cache: the layer says it; up to 0.11.0 the model runner did."""
        if hasattr(layer, "get_kv_cache_spec"):
            return layer.get_kv_cache_spec(self.config)
        make: Any = import_module("vllm.v1.kv_cache_interface").FullAttentionSpec
        size, dtype = self.config.cache_config.block_size, self.config.cache_config.cache_dtype
        dtype = layer.kv_cache_torch_dtype if hasattr(layer, "kv_cache_torch_dtype") else _torch_dtype(dtype, self.config)
        return make(
            block_size=size, num_kv_heads=layer.num_kv_heads, head_size=layer.head_size, dtype=dtype,
            **({"use_mla": layer.use_mla} if "use_mla" in signature(make).parameters else {}),
            **({"sliding_window": layer.sliding_window} if layer.sliding_window else {}),
        )  # fmt: skip

    def builder(self, layers: Sequence[Any], device: str = "cpu") -> Any:
        """The backend's metadata builder for these layers, which share the first one's spec."""
        import torch

        names, spec = [self.name_of(layer) for layer in layers], self.spec(layers[0])
        given = {"kv_cache_spec": spec, "layer_names": names, "vllm_config": self.config, "device": torch.device(device)}
        cls = self.backend.get_builder_cls()
        return cls(*(given[name] for name in signature(cls.__init__).parameters if name in given))

    @property
    def backend(self) -> Any:
        module, _, name = self.backend_path.rpartition(".")
        return getattr(import_module(module), name)

    def laid_out(self, cache: Any) -> Any:
        """A layer's keys and values, [2, pages, page size, KV heads, d], as FlashAttention's backend wants its cache: as the
        halves of its first dimension, of its second, or (from 0.26.0) of the last.
        """
        import torch

        size, heads, d = cache.shape[2:]
        shape_of = getattr(self.backend, "get_kv_cache_shape", None)  # up to 0.30.0
        shape = shape_of(cache.shape[1], size, heads, d) if shape_of else (0, 0, 0, 2 * d)
        if shape[-1] == 2 * d:
            return torch.cat([part.transpose(1, 2) for part in cache], -1)
        return cache if shape[0] == 2 else cache.transpose(0, 1)

    def name_of(self, layer: Any) -> str:
        known = self.config.compilation_config.static_forward_context
        return next(name for name, other in known.items() if other is layer)

    def batch(self, context: Sequence[int], new: Sequence[int], *, pages: int | None = None, **more: Any) -> Any:
        """The step's CommonAttentionMetadata, as the model runner fills it: requests with `context` tokens in the cache and
        `new` ones. Request b has the pages b * `pages` and following; with none given, as many as all ranks' tokens would take.
        """
        import torch

        totals = [n + m for n, m in zip(context, new)]
        starts, lens = cumulative(new), torch.tensor(totals, dtype=torch.int32)
        size, count = self.config.cache_config.block_size, len(totals)
        pages = pages or -(-max(totals) // size)
        tables = torch.arange(count * pages, dtype=torch.int32).view(count, pages)
        computed = torch.tensor(context, dtype=torch.int32)
        values = dict(
            query_start_loc=starts.clone(), query_start_loc_cpu=starts, seq_lens=kernels.on_gpu(lens), num_reqs=count,
            num_actual_tokens=sum(new), max_query_len=max(new), max_seq_len=max(totals), block_table_tensor=tables,
            slot_mapping=torch.zeros(sum(new), dtype=torch.int64), causal=True, **self._dcp_lens(lens),
            seq_lens_cpu=lens, _seq_lens_cpu=lens, seq_lens_cpu_upper_bound=lens, num_computed_tokens_cpu=computed,
            _num_computed_tokens_cpu=computed, is_prefilling=torch.tensor([m > 1 for m in new]),
        ) | more  # fmt: skip
        cls = _common()
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    def holds(self, token: int) -> bool:
        """Whether a request's token lies in this rank's cache."""
        size = self.sizes["dcp"]
        return token // self.interleave % size == self.rank % size

    def _dcp_lens(self, lens: Any) -> dict[str, Any]:
        """Lengths of this rank's shares, where there are several; both, as the runner has them."""
        if self.sizes["dcp"] == 1:
            return {}
        # Token by token, as the engine's `slot_mapping` lays them out: the engine's own count is what some of the fixes judge
        mine = lens.new_tensor([sum(self.holds(token) for token in range(n)) for n in lens.tolist()])
        return dict.fromkeys(("dcp_local_seq_lens_cpu", "dcp_local_seq_lens_cpu_upper_bound"), mine) | {
            "dcp_local_seq_lens": mine.clone()
        }

    @contextmanager
    def _platform(self) -> Iterator[None]:
        """The platform answers with this worker's backend, whatever it is asked for."""
        platform = type(import_module("vllm.platforms").current_platform)
        # One process may hold workers of several backends
        selector: Any = next(filter(None, map(found, ("vllm.v1.attention.selector", "vllm.attention.selector"))))
        selector._cached_get_attn_backend.cache_clear()
        answers = kernels.gpu_answers(self.capability)
        answers["get_attn_backend_cls"] = classmethod(lambda cls, *args, **kwargs: self.backend_path)
        if self.graphs is not None:  # else the engine's config turns them off
            answers["support_static_graph_mode"] = classmethod(lambda cls: True)
        with ExitStack() as stack:
            for name, answer in answers.items():
                stack.enter_context(_set(platform, name, answer))
            yield
        selector._cached_get_attn_backend.cache_clear()


def _config(
    model: dict, dtype: str, parallel: dict, requests: int, tokens: int, context: int, cache: dict, graphs: str | None,
    more: dict,
) -> Any:  # fmt: skip
    """The engine's VllmConfig, of its parts; each part's own checks run."""
    config: Any = import_module("vllm.config")
    folder = folder_of(model)
    scheduler = {"max_num_batched_tokens": tokens, "max_num_seqs": requests, "max_model_len": context}
    parts = {
        "model_config": config.ModelConfig(
            model=folder,
            tokenizer=folder,
            skip_tokenizer_init=True,
            dtype=dtype,
            max_model_len=context,
            **more.get("model_config", {}),
        ),
        "cache_config": _made(config.CacheConfig, more.get("cache", {}), gpu_memory_utilization=0.9, swap_space=0, **cache),
        "parallel_config": _made(
            config.ParallelConfig, more.get("parallel", {}), distributed_executor_backend="mp", **parallel
        ),
        "scheduler_config": _made(config.SchedulerConfig, more.get("scheduler", {}), is_encoder_decoder=False, **scheduler),
        "device_config": config.DeviceConfig(device="cpu"),
    }
    compilation = dict(more.get("compilation", {}))
    if graphs is not None:
        compilation["cudagraph_mode"] = graphs
    if compilation:
        parts["compilation_config"] = config.CompilationConfig(**compilation)
    if "attention" in more:
        parts["attention_config"] = config.AttentionConfig(**more["attention"])
    if "speculative" in more:
        target = {"target_model_config": parts["model_config"], "target_parallel_config": parts["parallel_config"]}
        parts["speculative_config"] = config.SpeculativeConfig(**target, **more["speculative"])
    return config.VllmConfig(**parts, **more.get("vllm", {}))


def _made(cls: Any, more: dict[str, Any], **ours: Any) -> Any:
    """A part of the config; of what we say by ourselves, as much as the release knows."""
    known = signature(cls).parameters
    return cls(**{name: value for name, value in ours.items() if name in known}, **more)


def _dcp(size: int, interleave: int) -> dict[str, int]:
    if size == 1:
        return {}
    known = signature(import_module("vllm.config").ParallelConfig).parameters
    if "decode_context_parallel_size" not in known:
        raise TypeError("this release has no decode context parallelism")
    name = "cp_kv_cache_interleave_size" if "cp_kv_cache_interleave_size" in known else "dcp_kv_cache_interleave_size"
    if interleave > 1 and name not in known:
        raise TypeError("this release does not interleave")
    return {"decode_context_parallel_size": size, **({name: interleave} if name in known else {})}


def _skipped(layers: Iterable[str]) -> dict[str, Any]:
    layers = list(layers)
    if layers and "kv_cache_dtype_skip_layers" not in signature(import_module("vllm.config").CacheConfig).parameters:
        raise TypeError("this release quantises the cache of all layers or of none")
    return {"kv_cache_dtype_skip_layers": layers} if layers else {}


def _attention(name: str) -> Any:
    homes = "vllm.model_executor.layers.attention", "vllm.attention.layer"
    for module in filter(None, map(found, homes)):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(name)


def _common() -> Any:
    homes = "vllm.v1.attention.backend", "vllm.v1.attention.backends.utils"
    return next(m.CommonAttentionMetadata for m in map(found, homes) if hasattr(m, "CommonAttentionMetadata"))


def _torch_dtype(name: str, config: Any) -> Any:
    return config.model_config.dtype if name == "auto" else import_module("vllm.utils").STR_DTYPE_TO_TORCH_DTYPE[name]


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute for the duration of a block; it may be inherited, or not be there."""
    had, former = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former) if had else delattr(owner, name)
