"""What decides the attention bugs of a vLLM deployment. Defaults were read in the releases named beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from .condition import OFF, ON, Fact, known, unknown
from .deployment import NO_CONFIG, NO_GPU, NO_LAUNCH, Deployment, Makers, attention, either, maker
from .gpus import NVIDIA

READ_UP_TO = Version("0.31.0")
#: model_type -> first release that runs it as MLA (is_deepseek_mla)
MLA_SINCE = {
    "deepseek_v2": "0.10.0",
    "deepseek_v3": "0.10.0",
    "kimi_k2": "0.10.0",
    "deepseek_v32": "0.11.0",
    "longcat_flash": "0.11.0",
    "kimi_linear": "0.11.1",
    "glm4_moe_lite": "0.15.0",
    "glm_moe_dsa": "0.16.0",
}
#: Architecture with MLA -> releases, from and below, in which Model Runner V2 is its default. Later ones are not listed: the
#: bug that asks for it is gone in 0.28.0
V2_BY_DEFAULT = {
    "DeepseekV2ForCausalLM": ("0.24.0", "0.28.0"),
    "LongcatFlashNgramForCausalLM": ("0.26.0", "0.28.0"),
    "KimiK3ForConditionalGeneration": ("0.27.0", "0.28.0"),
}
#: (qk_nope_head_dim, qk_rope_head_dim, v_head_dim) of DeepSeek-R1 and its kin, and of GLM-5
R1_DIMS, GLM_DIMS = (128, 64, 128), (192, 64, 256)
FLASH_ATTN, FLASHINFER, RAGGED, CUDNN = "flash_attn", "flashinfer", "trtllm_ragged", "cudnn"
#: Options that choose the prefill backend up to 0.20.2, and the variable that sets each up to 0.14
_USE_RAGGED, _USE_CUDNN, _NO_FLASHINFER = (
    "use_trtllm_ragged_deepseek_prefill",
    "use_cudnn_prefill",
    "disable_flashinfer_prefill",
)
_VARIABLE = {
    _USE_RAGGED: "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL",
    _USE_CUDNN: "VLLM_USE_CUDNN_PREFILL",
    _NO_FLASHINFER: "VLLM_DISABLE_FLASHINFER_PREFILL",
}
#: First release that reads each of these variables
_VARIABLE_SINCE = {_USE_RAGGED: "0.11.1", _USE_CUDNN: "0.10.0", _NO_FLASHINFER: "0.11.0"}

#: Values of --speculative-config.method, beside those that end in mtp, whose drafts are made of the target's hidden states
_OF_HIDDEN_STATES = "eagle", "eagle3", "dflash", "dspark"
_V2 = "VLLM_USE_V2_MODEL_RUNNER"


def default_of(option: str, release: Version) -> bool:
    """Default of an option of the prefill backend, 0.10.0-0.20.2."""
    if option == _USE_RAGGED:
        return Version("0.15.0") <= release < Version("0.18.0") or release == Version("0.18.1")
    return option == _NO_FLASHINFER and release >= Version("0.18.0")


def _attention(it: Deployment) -> Fact:
    if it.truth("VLLM_MLA_DISABLE"):
        return known("MHA", "VLLM_MLA_DISABLE")
    fact = attention(it, it.text_config().get("model_type"), MLA_SINCE, "model_type")
    if fact.values == ("sparse MLA",) and it.since("0.26.0"):
        return Fact(("MLA", "sparse MLA"), f"{fact.why}; sparse MLA shares this code from 0.26.0 on, how far was not read")
    return fact


def prefill_backend(it: Deployment) -> Fact:
    """What computes MLA prefill."""
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA:
        return Fact((FLASH_ATTN, "rocm_aiter_fa"), f"{it.gpu}; FlashInfer and TRT-LLM are NVIDIA's")
    if it.launch is None:
        # Every release tests the GPU first
        return known(FLASH_ATTN, str(it.gpu)) if it.gpu.generation < 10 else it.option("attention-config")
    if it.release is None or it.release > READ_UP_TO:
        return unknown("the default of this release was not read")
    return _by_options(it) if it.release < Version("0.21.0") else _by_priority(it)


def _by_options(it: Deployment) -> Fact:
    """Up to 0.20.2: chosen by options, on SM100 alone."""
    assert it.gpu is not None and it.release is not None
    if not _is_sm100(it):
        return known(FLASH_ATTN, f"vLLM {it.release} on {it.gpu}")
    answers = {option: _asked(it, option) for option in _VARIABLE}
    for answer in answers.values():
        if not answer.values:
            return answer
    on = {option for option, answer in answers.items() if answer.values == (ON,)}
    why = ", ".join(dict.fromkeys(answer.why for answer in answers.values() if not answer.why.startswith("default")))
    why = f"vLLM {it.release} on {it.gpu}" + (f", {why}" if why else "")
    if it.since("0.15.0"):
        dims = head_sizes(it)
        if dims is None:
            return unknown(NO_CONFIG)
        fits = dims == R1_DIMS
        chosen = RAGGED if _USE_RAGGED in on and fits else None
        chosen = chosen or (FLASHINFER if fits and not on & {_NO_FLASHINFER, _USE_CUDNN} else None)
    else:
        chosen = None if on else FLASHINFER
        chosen = chosen or (RAGGED if _USE_RAGGED in on else None)
    chosen = chosen or (CUDNN if _USE_CUDNN in on else FLASH_ATTN)
    if chosen != FLASH_ATTN and not it.since("0.11.1"):
        return Fact((chosen, FLASH_ATTN), f"{why}; whether FlashInfer is installed, which this release does not require")
    return known(chosen, why)


def _is_sm100(it: Deployment) -> bool:
    assert it.gpu is not None
    if not it.since("0.10.2"):
        return it.gpu.generation >= 10
    return it.gpu.generation == 10 if it.since("0.13.0") else it.gpu.capability == 100


def _asked(it: Deployment, option: str) -> Fact:
    """On or off: by its variable, which wins up to 0.14, from 0.13 by `--attention-config`, else the default."""
    assert it.release is not None
    name, variable = f"attention-config.{option}", _VARIABLE[option]
    asked = it.truth(variable) if it.since(_VARIABLE_SINCE[option]) and not it.since("0.15.0") else None
    if asked is not None:
        return known(ON if asked else OFF, variable)
    if it.given(name) and it.since("0.13.0"):
        fact = it.option(name)
        return known(ON if str(fact.values[0]).lower() in ("true", "1") else OFF, fact.why)
    default = default_of(option, it.release)
    fact = it.option(name, ON if default else OFF)
    return known(fact.values[0], "default") if fact.values else fact


def _by_priority(it: Deployment) -> Fact:
    """From 0.21.0: the one asked for, else the first of a list that fits GPU and head sizes."""
    assert it.gpu is not None
    asked = it.option("attention-config.mla_prefill_backend")
    if asked.values:
        name = str(asked.values[0]).lower()
        if name in (FLASHINFER, RAGGED) and it.gpu.generation != 10:
            return known("refused", f"{asked.why} {name}: no server starts with it on {it.gpu}")
        return known(name, asked.why)
    if it.gpu.generation != 10:
        return known(FLASH_ATTN, f"vLLM {it.release} on {it.gpu}")
    if it.launch is not None and it.launch.not_read:
        return asked
    if any(it.given(f"attention-config.{option}") for option in _VARIABLE):
        return unknown("options of --attention-config that this release replaces; use mla_prefill_backend")
    dims = head_sizes(it)
    if dims is None:
        return unknown(NO_CONFIG)
    why = f"default of vLLM {it.release} for head sizes {dims} on {it.gpu}"
    if dims == R1_DIMS:
        return known(FLASH_ATTN, why)
    if dims == GLM_DIMS and it.since("0.27.0"):
        return known(RAGGED, why)
    return unknown(f"the {why} was not read")


def head_sizes(it: Deployment) -> tuple[Any, ...] | None:
    text = it.text_config()
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return tuple(text.get(name) for name in names) if it.config is not None else None


#: Releases, from and below, in which MLA on Hopper with an FP8 KV cache is FlashMLA's by default: read in those that have
#: vllm.flashmla-fp8-graph. The backend before it in their list takes no such cache
FLASHMLA_FP8 = ("0.15.0", "0.19.0")


def attention_backend(it: Deployment) -> Fact:
    for option in ("attention-backend", "attention-config.backend"):
        if it.given(option):
            fact = it.option(option)
            return known(str(fact.values[0]).upper(), fact.why)
    variable = "VLLM_ATTENTION_BACKEND"
    if variable in it.variables() and it.release is not None and not it.since("0.15.0"):
        asked = it.variables()[variable].upper()
        return known(asked.removesuffix("_VLLM_V1"), variable)  # up to 0.10.2 it may say which engine, too
    if it.absent("attention-backend") and _defaults_to_flashmla(it):
        return known("FLASHMLA", f"default of vLLM {it.release} for MLA with an FP8 KV cache on {it.gpu}")
    fact = it.option("attention-backend")
    return unknown(f"{fact.why}: the default depends on GPU, head sizes and dtypes" if it.launch else fact.why)


def _defaults_to_flashmla(it: Deployment) -> bool:
    first, end = FLASHMLA_FP8
    hopper = it.gpu is not None and it.gpu.maker == NVIDIA and it.gpu.generation == 9
    fp8 = [value for value in kv_cache_dtype(it).values if str(value).startswith("fp8")]
    return hopper and bool(fp8) and _attention(it).values == ("MLA",) and it.since(first) and not it.since(end)


def _model_runner(it: Deployment) -> Fact:
    asked = it.truth(_V2)
    if asked is not None:
        return known("V2" if asked else "V1", f"{_V2}={it.variables()[_V2]}")
    if it.release is None or it.release > READ_UP_TO:
        return unknown(f"the default of this release was not read; set {_V2}")
    if it.launch is None:
        return unknown(NO_LAUNCH)
    if not it.since("0.24.0"):
        return known("V1", f"no {_V2}, and no default of vLLM {it.release} for MLA")
    if it.config is None:
        return unknown(NO_CONFIG)
    if _recurrent_layers(it).values == (ON,):
        return _model_runner_of_hybrids(it)
    architecture = it.architecture()
    first, end = V2_BY_DEFAULT.get(architecture or "", ("", ""))
    if first and it.since(first) and not it.since(end):
        if it.launch.not_read:
            return it.option("speculative-config")
        if it.launch.not_understood or it.given("speculative-config", "prefill-context-parallel-size", "enable-dbo"):
            return Fact(("V2", "V1"), f"default for {architecture}, unless an option needs V1; set {_V2} to be sure")
        return known("V2", f"default of vLLM {it.release} for {architecture}")
    if architecture in ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration") and not it.since("0.28.0"):
        if it.given("prefill-context-parallel-size", "speculative-config"):
            return Fact(("V1", "V2"), f"options that may need V2; set {_V2} to be sure")
        return known("V1", f"default of vLLM {it.release} for {architecture}")
    return unknown(f"the default of vLLM {it.release} for {architecture} was not read; set {_V2}")


def _model_runner_of_hybrids(it: Deployment) -> Fact:
    """From 0.24.0: V1 up to 0.28.0, then V2, where no option asks for the other one."""
    assert it.launch is not None
    chosen, other = ("V2", "V1") if it.since("0.29.0") else ("V1", "V2")
    method = it.option("speculative-config.method", "none").values
    on_both = [name for name in method if str(name).lower().endswith(("none", "mtp", "eagle", "eagle3"))]
    if not on_both or it.launch.not_understood or it.given("prefill-context-parallel-size", "enable-dbo"):
        return Fact((chosen, other), f"default for hybrid models, unless an option needs {other}; set {_V2} to be sure")
    return known(chosen, f"default of vLLM {it.release} for hybrid models")


def _engine_core(it: Deployment) -> Fact:
    if it.truth("VLLM_USE_V1") is False and not it.since("0.11.0"):
        return known("V0", "VLLM_USE_V1=0")
    return known("V1", "default" if not it.since("0.11.0") else "the only one from 0.11.0")


def _cached_prefix(it: Deployment) -> Fact:
    """Whether a prefill can meet KV of its own request in the cache: by prefix caching, or by prefill in chunks."""
    return either(*(_on_by_default(it, option) for option in ("enable-prefix-caching", "enable-chunked-prefill")))


def _on_by_default(it: Deployment, option: str) -> Fact:
    fact = it.option(option, ON)
    return fact if it.given(option) or not fact.values else known(ON, f"{option.removeprefix('enable-')}, on by default")


def _full_graphs(it: Deployment) -> Fact:
    """Whether decode steps run in CUDA graphs that hold attention, too."""
    eager = it.option("enforce-eager", OFF)
    if eager.values == (ON,):
        return known(OFF, "--enforce-eager")
    words = it.launch.not_understood if it.launch else []
    levels = [word for word in words if word.startswith(("-O", "--optimization-level"))]
    if levels or it.given("compilation-config"):
        mode = it.option("compilation-config.cudagraph_mode")
        if levels or not mode.values:
            return unknown(f"{levels[0] if levels else '--compilation-config'} may choose the mode of CUDA graphs")
        return known(ON if "FULL" in str(mode.values[0]).upper() else OFF, f"{mode.why} {mode.values[0]}")
    if not eager.values:
        return eager
    return known(ON, "default from 0.11.0") if it.since("0.11.0") else unknown("the default of this release was not read")


def linear_attention(it: Deployment) -> Fact:
    """Whether layers keep a recurrent state by Gated DeltaNet, or what shares its metadata (Kimi Delta Attention)."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    kinds = text.get("layer_types") or ()
    if "linear_attention" in kinds or text.get("linear_num_value_heads") or text.get("linear_attn_config"):
        return known(ON, "config.json has layers of linear attention")
    return known(OFF, "config.json has no layers of linear attention")


def _recurrent_layers(it: Deployment) -> Fact:
    """Whether the model is hybrid: layers of attention, and others that keep a recurrent state (Gated DeltaNet, Mamba …)."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    kinds = {str(kind) for name in ("layer_types", "layers_block_type") for kind in text.get(name) or ()}
    if kinds and all(kind.endswith("attention") and not kind.startswith("linear") for kind in kinds):
        return known(OFF, "config.json has layers of attention alone")
    if linear_attention(it).values == (ON,) or kinds & {"mamba", "mamba2", "hybrid", "conv"}:
        return known(ON, "config.json has layers with a recurrent state")
    names = [name for name in text if name.startswith(("mamba_", "ssm_", "hybrid_override_pattern"))]
    return known(ON, f"config.json has {names[0]}") if names else known(OFF, "config.json has no layers with a recurrent state")


def _cached_states(it: Deployment) -> Fact:
    """Whether prefix caching is on for a hybrid model: by default from 0.28.0."""
    name = "enable-prefix-caching"
    if it.release is None and not it.given(name):
        return unknown(f"whether hybrid models cache prefixes by default depends on the release; set --{name}")
    default = ON if it.since("0.28.0") else OFF
    fact = it.option(name, default)
    return (
        fact if it.given(name) or not fact.values else known(default, f"no --{name}, default of vLLM {it.release} for hybrids")
    )


def hidden_states_drafter(it: Deployment) -> Fact:
    """Whether drafts are made of the target's hidden states (EAGLE, MTP, DFlash), as `use_eagle` of the engine says."""
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none":
        return unknown("--speculative-config without a method") if it.given("speculative-config") else known(OFF, method.why)
    return known(ON if name in _OF_HIDDEN_STATES or name.endswith("mtp") else OFF, f"{method.why} {name}")


def _speculative_decoding(it: Deployment) -> Fact:
    if it.given("speculative-config"):
        return known(ON, "--speculative-config")
    return it.option("speculative-config", OFF)


def quantization_of(it: Deployment) -> Mapping[str, Any]:
    """The checkpoint's quantization_config; empty where it has none."""
    assert it.config is not None
    return it.config.get("quantization_config") or it.text_config().get("quantization_config") or {}


def kv_cache_dtype(it: Deployment) -> Fact:
    asked = it.option("kv-cache-dtype", "auto")
    if asked.values != ("auto",):
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    schemes = [name for name, value in quantization_of(it).items() if name.startswith("kv_cache") and value]
    return unknown(f"--kv-cache-dtype auto may follow the checkpoint's {schemes[0]}") if schemes else asked


FACTS: Makers = {
    "attention": _attention,
    "GPU": maker,
    "MLA prefill backend": prefill_backend,
    "attention backend": attention_backend,
    "model runner": _model_runner,
    "engine core": _engine_core,
    "cached prefix": _cached_prefix,
    "decode context parallel size": lambda it: it.number("decode-context-parallel-size", 1),
    "KV cache dtype": kv_cache_dtype,
    "full CUDA graphs": _full_graphs,
    "linear attention": linear_attention,
    "recurrent layers": _recurrent_layers,
    "cached prefixes of a hybrid model": _cached_states,
    "drafts from hidden states": hidden_states_drafter,
    "speculative decoding": _speculative_decoding,
}
