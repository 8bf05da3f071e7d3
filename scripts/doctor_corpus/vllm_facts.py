"""What one release of vLLM makes of one launch line: the doctor's facts, each from the engine's own code.

`facts_of` takes the config that `EngineArgs.create_engine_config` returned. A fact that the engine's code does not say is left
out; the doctor's own stands for it then, and `vllm.py` counts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.compat.doctor.condition import OFF, ON
from attnfix.patches.lab.vllm.kernels import found

Facts = dict[str, str | int]

#: Function of MambaStateShapeCalculator that a model asks -> (kind of state, name of the backend of its layers)
_STATES = {
    "mamba1_state_shape": ("mamba1", "MAMBA1"), "mamba2_state_shape": ("mamba2", "MAMBA2"),
    "short_conv_state_shape": ("conv", "SHORT_CONV"), "linear_attention_state_shape": ("lightning", "LINEAR"),
    "gated_delta_net_state_shape": ("linear", "GDN_ATTN"), "kda_state_shape": ("linear", "GDN_ATTN"),
}  # fmt: skip
_PREFILL = {"FLASH_ATTN": "flash_attn", "FLASHINFER": "flashinfer", "TRTLLM_RAGGED": "trtllm_ragged", "CUDNN": "cudnn"}


def facts_of(config: Any) -> Facts:
    model, cache, scheduler, parallel = (
        config.model_config, config.cache_config, config.scheduler_config, config.parallel_config
    )  # fmt: skip
    states = _states(config)
    with import_module("vllm.config").set_current_vllm_config(config):
        backend = _backend(config)
        facts: Facts = {
            "attention": _attention(model),
            "GPU": "AMD" if _platform().is_rocm() else "NVIDIA",
            "attention backend": backend.get_name(),
            "model runner": "V2" if _runs_v2(config) else "V1",
            "engine core": "V1",
            "cached prefix": _switch(cache.enable_prefix_caching or scheduler.enable_chunked_prefill),
            "decode context parallel size": parallel.decode_context_parallel_size,
            "KV cache dtype": cache.cache_dtype,
            "KV cache scales": _scales(config.quant_config),
            "full CUDA graphs": _switch(_full_graphs(config, backend, states)),
            "linear attention": _switch("linear" in states),
            "recurrent layers": _switch(model.is_hybrid),
            "Mamba2 layers": _switch("mamba2" in states),
            "sliding-window layers": _switch(_has_windows(model)),
            "data parallel ranks": parallel.data_parallel_size,
            "KV connector": _switch(config.kv_transfer_config is not None),
            "async scheduling": _switch(scheduler.async_scheduling),
            "ranks in lock step": _switch(model.is_moe),
            "kernels of the attention backend": _kernels(config, backend),
        }
        if model.use_mla:
            facts["MLA prefill backend"] = _prefill(config)
            facts |= _weight(config)
        if model.is_hybrid:
            facts["cached prefixes of a hybrid model"] = _switch(cache.enable_prefix_caching)
        facts |= _drafts(config.speculative_config) | _versions(model)
    return facts


def _switch(value: Any) -> str:
    return str(ON if value else OFF)


def _platform() -> Any:
    return import_module("vllm.platforms").current_platform


def _attention(model: Any) -> str:
    if not model.use_mla:
        return "MHA"
    return "sparse MLA" if getattr(model.hf_text_config, "index_topk", None) is not None else "MLA"


def _runs_v2(config: Any) -> bool:
    if hasattr(config, "use_v2_model_runner"):
        return bool(config.use_v2_model_runner)
    return bool(import_module("vllm.envs").VLLM_USE_V2_MODEL_RUNNER)


def _has_windows(model: Any) -> bool:
    """A layer gets `get_sliding_window`, unless the model's config switches windows off or has none for its layers."""
    text = model.hf_text_config
    if model.disable_sliding_window or not model.get_sliding_window():
        return False
    kinds = getattr(text, "layer_types", None)
    return any("sliding" in kind for kind in kinds) if kinds else getattr(text, "use_sliding_window", True)


def _backend(config: Any) -> Any:
    """Of a layer of full attention."""
    selector = found("vllm.v1.attention.selector") or import_module("vllm.attention.selector")
    model = config.model_config
    asked = {
        "head_size": model.get_head_size(), "dtype": model.dtype, "kv_cache_dtype": config.cache_config.cache_dtype,
        "use_mla": model.use_mla, "has_sink": _has_sinks(model),
        "use_sparse": _attention(model) == "sparse MLA", "use_mm_prefix": bool(getattr(model, "is_mm_prefix_lm", False)),
        "num_heads": model.get_num_attention_heads(config.parallel_config), "block_size": None,
    }  # fmt: skip
    takes = signature(selector.get_attn_backend).parameters
    return selector.get_attn_backend(**{name: value for name, value in asked.items() if name in takes})


def _kernels(config: Any, backend: Any) -> str:
    """Whose kernels run, in prefills at least: the builder of FLASHINFER's metadata asks this for each step."""
    if backend.get_name() != "FLASHINFER":
        return "others"
    import torch

    model, parallel, attention = config.model_config, config.parallel_config, config.attention_config
    cache = config.cache_config.cache_dtype if config.cache_config.cache_dtype.startswith(("fp8", "nvfp4")) else "auto"
    fp8_queries = cache != "auto" and not attention.disable_flashinfer_q_quantization
    of_trtllm = import_module("vllm.utils.flashinfer").use_trtllm_attention(
        model.get_num_attention_heads(parallel),
        model.get_num_kv_heads(parallel),
        num_tokens=4096,
        max_seq_len=4096,
        dcp_world_size=parallel.decode_context_parallel_size,
        kv_cache_dtype=cache,
        q_dtype=torch.float8_e4m3fn if fp8_queries else model.dtype,
        is_prefill=True,
        force_use_trtllm=attention.use_trtllm_attention,
        has_sinks=_has_sinks(model),
    )
    return "others" if of_trtllm else "FlashInfer"


def _has_sinks(model: Any) -> bool:
    return getattr(model.hf_text_config, "model_type", "") == "gpt_oss"


def _prefill(config: Any) -> str:
    selector = found("vllm.v1.attention.backends.mla.prefill.selector")
    if selector:
        name = selector.get_mla_prefill_backend(config).get_name()
        return str(_PREFILL.get(name, name.lower()))
    mla = found("vllm.model_executor.layers.attention.mla_attention")
    if mla.use_trtllm_ragged_deepseek_prefill():
        return "trtllm_ragged"
    if mla.use_flashinfer_prefill():
        return "flashinfer"
    return "cudnn" if mla.use_cudnn_prefill() else "flash_attn"


def _states(config: Any) -> dict[str, str]:
    """kind of state -> name of the backend of its layers: the model's class asks for the shape of each."""
    utils = import_module("vllm.model_executor.layers.mamba.mamba_utils")
    model = config.model_config
    if not model.is_hybrid:
        return {}
    asked: list[str] = []
    with _recording(utils.MambaStateShapeCalculator, asked):
        cls, _ = import_module("vllm.model_executor.models").ModelRegistry.resolve_model_cls(
            model.architectures, model_config=model
        )
        cls.get_mamba_state_shape_from_config(config)
    return dict(_STATES[name] for name in asked)


@contextmanager
def _recording(calculator: Any, asked: list[str]) -> Iterator[None]:
    own = {name: vars(calculator)[name] for name in _STATES if name in vars(calculator)}

    def recorded(name: str) -> Any:
        def shape(cls: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            return own[name].__get__(None, calculator)(*args, **kwargs)

        return classmethod(shape)

    try:
        for name in own:
            setattr(calculator, name, recorded(name))
        yield
    finally:
        for name, method in own.items():
            setattr(calculator, name, method)


def _full_graphs(config: Any, backend: Any, states: dict[str, str]) -> bool:
    """The mode after the runner has asked what the backends of all layers support."""
    base = found("vllm.v1.attention.backend") or import_module("vllm.v1.attention.backends.utils")
    compilation, drafts = config.compilation_config, config.speculative_config
    if not compilation.cudagraph_mode.has_full_cudagraphs():
        return False
    backends = [backend, *map(_state_backend, states.values())]
    supports = {each.get_builder_cls().get_cudagraph_support(config, _spec(config)): each.__name__ for each in backends}
    least = min([*supports, base.AttentionCGSupport.ALWAYS], key=lambda support: support.value)
    tokens = 1 + (drafts.num_speculative_tokens if drafts else 0)
    if hasattr(compilation, "resolve_cudagraph_mode_and_sizes"):
        known = {
            "min_cg_support": least, "min_cg_attn_backend": supports.get(least), "uniform_decode_query_len": tokens,
            "tensor_parallel_size": config.parallel_config.tensor_parallel_size, "kv_cache_config": None, "max_num_reqs": 1,
            "use_v2_model_runner": _runs_v2(config), "is_profiling": True,
        }  # fmt: skip
        takes = signature(compilation.resolve_cudagraph_mode_and_sizes).parameters
        mode = compilation.resolve_cudagraph_mode_and_sizes(**{name: known[name] for name in takes if name in known})
        return bool((mode or compilation.cudagraph_mode).has_full_cudagraphs())
    runner = import_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
    this = SimpleNamespace(
        vllm_config=config, compilation_config=compilation, uniform_decode_query_len=tokens, model_config=config.model_config,
        parallel_config=config.parallel_config, cudagraph_dispatcher=_Quiet(), cudagraph_batch_sizes=[], max_num_reqs=1,
        kv_cache_config=None, speculative_config=drafts,
    )  # fmt: skip
    groups = [{each} for each in backends]
    runner._check_and_update_cudagraph_mode(this, groups, [SimpleNamespace(kv_cache_spec=_spec(config)) for _ in groups])
    return bool(compilation.cudagraph_mode.has_full_cudagraphs())


class _Quiet:
    def initialize_cudagraph_keys(self, *args: Any, **kwargs: Any) -> None: ...


def _spec(config: Any) -> Any:
    """Of a layer of full attention, for backends that ask for heads."""
    interface = import_module("vllm.v1.kv_cache_interface")
    model = config.model_config
    heads, size = model.get_num_kv_heads(config.parallel_config), model.get_head_size()
    return interface.FullAttentionSpec(block_size=16, num_kv_heads=heads, head_size=size, dtype=model.dtype)


def _state_backend(name: str) -> Any:
    return import_module("vllm.v1.attention.backends.registry").MambaAttentionBackendEnum[name].get_class()


def _scales(quantization: Any) -> str:
    compressed = type(quantization).__name__ == "CompressedTensorsConfig" and quantization.kv_cache_scheme
    return "compressed-tensors" if compressed else "others"


def _weight(config: Any) -> Facts:
    """What the engine's quantisation makes of kv_b_proj in every layer."""
    quantization, model = config.quant_config, config.model_config
    if quantization is None:
        return {"kv_b_proj": "floats", "weight of kv_b_proj": "others"}
    linear = import_module("vllm.model_executor.layers.linear")
    kept = {_kept(quantization, linear, f"model.layers.{layer}.self_attn.kv_b_proj") for layer in range(_layers(model))}
    return {
        "kv_b_proj": "floats" if kept == {"floats"} else "packed",
        "weight of kv_b_proj": "int8" if "int8" in kept else "others",
    }


def _layers(model: Any) -> int:
    return int(model.hf_text_config.num_hidden_layers)


def _kept(quantization: Any, linear: Any, name: str) -> str:
    layer = linear.ColumnParallelLinear.__new__(linear.ColumnParallelLinear)
    import torch

    torch.nn.Module.__init__(layer)
    layer.prefix, layer.input_size, layer.output_size = name, 512, 32768
    layer.input_size_per_partition, layer.output_partition_sizes = 512, [32768]
    method = quantization.get_quant_method(layer, name)
    scheme = type(getattr(layer, "scheme", method)).__name__
    if "Unquantized" in scheme or scheme == "NoneType":
        return "floats"
    if "Int8" in scheme:
        return "int8"
    if any(word in scheme for word in ("WNA16", "AWQ", "GPTQ", "W8A16Fp8", "W4A16", "AutoAWQ", "NvFp4", "FP4")):
        return "packed"
    marlin = bool(getattr(method, "use_marlin", False))
    return "packed" if marlin else "floats"


def _drafts(drafts: Any) -> Facts:
    method = drafts.method if drafts else None
    count = drafts.num_speculative_tokens if drafts else 0
    several = "none" if not count else "several" if count > 1 else "one"
    return {
        "speculative decoding": _switch(drafts),
        "drafts from hidden states": _switch(drafts and drafts.use_eagle()),
        "draft tokens of a step": several,
        "drafts of a dummy batch": several if method in ("eagle", "eagle3", "mtp") else "none",
        "drafter": "DFlash" if method in ("dflash", "dspark") else "another",
        "drafts by batch size": _switch(getattr(drafts, "num_speculative_tokens_per_batch_size", None)),
    }


def _versions(model: Any) -> Facts:
    if _platform().is_rocm():
        return {}
    utils = import_module("vllm.v1.attention.backends.fa_utils")
    takes = signature(utils.get_flash_attn_version).parameters
    sizes = {"head_size": model.get_head_size()} if "head_size" in takes else {}
    version = utils.get_flash_attn_version(**sizes)
    return {"FlashAttention of FLASH_ATTN": "2" if version == 2 else "others"}
