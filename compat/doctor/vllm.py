"""What decides the attention bugs of a vLLM deployment. Defaults were read in the releases named beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from . import compressed_tensors
from .condition import OFF, ON, Fact, known, unknown
from .deployment import NO_CONFIG, NO_GPU, NO_LAUNCH, Deployment, Makers, attention, either, maker
from .gpus import NVIDIA
from .vllm_backends import FIRST_OF_MLA, FIRST_OF_MLA_FP8, TRIED_FIRST

READ_UP_TO = Version("0.33.0")
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
#: Architecture -> releases, from and below, in which it is one of those whose default is Model Runner V2. From 0.25.0 on dense
#: models that are not hybrid have it, too, from 0.29.0 on all models
V2_BY_DEFAULT = {
    "Qwen3ForCausalLM": ("0.22.0", "0.25.0"),
    "LlamaForCausalLM": ("0.23.0", "0.25.0"),
    "MistralForCausalLM": ("0.23.0", "0.25.0"),
    "DeepseekV2ForCausalLM": ("0.24.0", "0.29.0"),
    "Qwen2MoeForCausalLM": ("0.24.0", "0.29.0"),
    "GraniteMoeForCausalLM": ("0.24.0", "0.29.0"),
    "InklingForCausalLM": ("0.26.0", "0.29.0"),
    "InklingForConditionalGeneration": ("0.26.0", "0.29.0"),
    "LongcatFlashNgramForCausalLM": ("0.26.0", "0.29.0"),
    "KimiK3ForConditionalGeneration": ("0.27.0", "0.29.0"),
    "DeepseekV4ForCausalLM": ("0.28.0", "0.29.0"),
}
#: Architectures that AMD's GPUs run on V1 while others run them on V2 -> releases, from and below
V1_ON_AMD = {
    "KimiK3ForConditionalGeneration": ("0.27.0", "0.28.0"),
    "DeepseekV4ForCausalLM": ("0.28.0", "0.32.0"),
    "DeepseekV32ForCausalLM": ("0.29.0", "0.32.0"),
    "GlmMoeDsaForCausalLM": ("0.30.0", "0.32.0"),
}
#: Value of --speculative-config.method -> first release whose Model Runner V2 takes it; before, a server runs on V1
V2_TAKES_METHOD = {
    "eagle": "0.22.0",
    "eagle3": "0.22.0",
    "mtp": "0.22.0",
    "dflash": "0.24.0",
    "dspark": "0.25.0",
    "extract_hidden_states": "0.29.0",
    "draft_model": "0.31.0",
    "ngram": "0.32.0",
    "ngram_gpu": "0.32.0",
    "medusa": "0.33.0",
    "mlp_speculator": "0.33.0",
}
V2_NEVER_TAKES = "suffix", "custom_class"
#: Options that Model Runner V2 may not take (it depends on their values) -> first release in which they decide nothing; empty:
#: in none that was read
MAY_NEED_V1 = {
    "logprobs-mode": "0.25.0",
    "enable-return-routed-experts": "0.28.0",
    "ec-transfer-config": "0.28.0",
    "prefill-context-parallel-size": "0.29.0",
    "enable-prompt-embeds": "0.29.0",
    "runner": "0.29.0",
    "convert": "0.29.0",
    "task": "0.29.0",
    "kv-sharing-fast-prefill": "0.30.0",
    "logits-processors": "0.31.0",
    "mamba-cache-mode": "0.32.0",
    "enable-elastic-ep": "0.32.0",
    "compilation-config.mode": "0.32.0",
    "compilation-config.pass_config": "0.32.0",
    "speculative-config.parallel_drafting": "",
    "speculative-config.use_heterogeneous_vocab": "",
    "speculative-config.enable_adaptive_verification": "",
    "ubatch-size": "",
}
#: The same for servers that run on V1 by default: what may ask for V2
MAY_NEED_V2 = "prefill-context-parallel-size", "watermark-config", "attention-config.hisparse_config"

#: What makes another model of the one in config.json
_OTHER_MODEL = "hf-overrides.architectures", "hf-overrides.model_type", "hf-overrides.text_config"
#: Options that the engine's code for a choice reads, too, and that decide nothing there: a fact has them, or they count only
#: beside another that is read
_RUNNER_SETTLED = (
    *MAY_NEED_V1, *MAY_NEED_V2, "speculative-config.method", "enable-dbo", "pipeline-parallel-size", "quantization",
    "distributed-executor-backend", "tensor-parallel-size", "decode-context-parallel-size", "compilation-config.cudagraph_mode",
    "model", "revision",
)  # fmt: skip
_GRAPHS_SETTLED = (
    "enforce-eager", "compilation-config", "tensor-parallel-size", "data-parallel-size", "enable-expert-parallel",
    "speculative-config.method", "speculative-config.model", "speculative-config.num_speculative_tokens",
    "kv-transfer-config.kv_connector", "kv-transfer-config.kv_role", "decode-context-parallel-size", "model", "revision",
)  # fmt: skip
_BACKEND_SETTLED = (
    "attention-config.use_prefill_decode_attention", "decode-context-parallel-size", "kv-transfer-config",
)  # fmt: skip

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
_AITER = "VLLM_ROCM_USE_AITER"


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
        if it.truth(_AITER) is False:
            return known(FLASH_ATTN, f"{_AITER} on {it.gpu}")
        return Fact((FLASH_ATTN, "rocm_aiter_fa"), f"{it.gpu}; set {_AITER} to be sure")
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
    if moved := it.moved_by("attention backend", _BACKEND_SETTLED):
        return unknown(f"{moved} may choose another backend than the default")
    if it.absent("attention-backend") and _defaults_to_flashmla(it):
        return known("FLASHMLA", f"default of vLLM {it.release} for MLA with an FP8 KV cache on {it.gpu}")
    if it.absent("attention-backend") and _defaults_to_flash_attn(it):
        return known("FLASH_ATTN", f"default of vLLM {it.release} for heads of {_head_size(it)} on {it.gpu}")
    if it.absent("attention-backend") and _takes_the_first(it):
        return known("FLASH_ATTN", f"the first that vLLM {it.release} tries on {it.gpu}, for heads of {_head_size(it)}")
    if it.absent("attention-backend") and (name := _first_of_mla(it)):
        return known(name, f"the first that vLLM {it.release} tries for MLA with head sizes {head_sizes(it)} on {it.gpu}")
    fact = it.option("attention-backend")
    return unknown(f"{fact.why}: the default depends on GPU, head sizes and dtypes" if it.launch else fact.why)


def _defaults_to_flashmla(it: Deployment) -> bool:
    first, end = FLASHMLA_FP8
    hopper = it.gpu is not None and it.gpu.maker == NVIDIA and it.gpu.generation == 9
    fp8 = [value for value in kv_cache_dtype(it).values if str(value).startswith("fp8")]
    return hopper and bool(fp8) and _attention(it).values == ("MLA",) and it.since(first) and not it.since(end)


#: Releases, from and below, in which models without MLA have FlashAttention on Hopper by default: read in those that have
#: vllm.fa3-cascade. It takes these head sizes, and no float32
FLASH_ATTN_ON_HOPPER = ("0.10.1", "0.11.1")
_HEAD_SIZES = (32, 64, 96, 128, 160, 192, 224, 256)


def _defaults_to_flash_attn(it: Deployment) -> bool:
    first, end = FLASH_ATTN_ON_HOPPER
    hopper = it.gpu is not None and it.gpu.capability == 90
    dtype = it.option("dtype", "auto").values in (("auto",), ("half",), ("float16",), ("bfloat16",))
    reads = it.since(first) and not it.since(end) and _engine_core(it).values == ("V1",)
    return hopper and dtype and reads and _attention(it).values == ("MHA",) and _head_size(it) in _HEAD_SIZES


#: Keys of config.json of models whose layers ask for more than FlashAttention of every generation gives: sizes that differ, or
#: an attention of their own
_OTHER_LAYERS = "global_head_dim", "v_head_dim", "swa_head_dim", "attention_chunk_size", "is_encoder_decoder"


def _takes_the_first(it: Deployment) -> bool:
    """Whether FlashAttention is tried first, and serves these layers: its `supports_…` in v1/attention/backends/flash_attn.py
    of 0.19.0-0.33.0 (0.33.0: 402-489). It is not said of models with several parts, which may attend to images both ways."""
    if it.gpu is None or not _one_part_on_nvidia(it):
        return False
    text = it.text_config()
    hopper = it.gpu.generation == 9
    sinks = text.get("model_type") == "gpt_oss" or any("sink" in name for name in text)
    caches = ("auto", "float16", "bfloat16", *(("fp8", "fp8_e4m3") if hopper else ()))
    return (
        TRIED_FIRST.get(str(it.release), {}).get(it.gpu.generation) == "FLASH_ATTN"
        and _attention(it).values == ("MHA",)
        and kv_cache_dtype(it).values in tuple((name,) for name in caches)
        and _head_size(it) in _HEAD_SIZES
        and not any(text.get(name) for name in _OTHER_LAYERS)
        and (hopper or not sinks)
    )


def _first_of_mla(it: Deployment) -> str | None:
    """The default for MLA that is not sparse, with the head sizes of DeepSeek-R1: FlashInfer's takes not all."""
    if not _one_part_on_nvidia(it) or _attention(it).values != ("MLA",) or head_sizes(it) != R1_DIMS:
        return None
    cache = kv_cache_dtype(it).values
    tables = {"auto": FIRST_OF_MLA, "bfloat16": FIRST_OF_MLA, "fp8": FIRST_OF_MLA_FP8, "fp8_e4m3": FIRST_OF_MLA_FP8}
    table = tables.get(str(cache[0]), {}) if cache else {}
    return table.get(str(it.release), {}).get(it.gpu.generation) if it.gpu else None


def _one_part_on_nvidia(it: Deployment) -> bool:
    """Whether NVIDIA's default is the release's own, and config.json describes all layers of attention: a model of one part."""
    one_part = it.config is not None and it.text_config() is it.config
    nvidia = it.gpu is not None and it.gpu.maker == NVIDIA
    half = it.option("dtype", "auto").values in (("auto",), ("half",), ("float16",), ("bfloat16",))
    return one_part and nvidia and half and not it.given("attention-config") and not it.truth("VLLM_BATCH_INVARIANT")


def _head_size(it: Deployment) -> int | None:
    text = it.text_config()
    if text.get("head_dim"):
        return int(text["head_dim"])
    hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
    return hidden // heads if hidden and heads else None


def _model_runner(it: Deployment) -> Fact:
    asked = it.truth(_V2)
    if asked is not None:
        return known("V2" if asked else "V1", f"{_V2}={it.variables()[_V2]}")
    if it.release is None or it.release > READ_UP_TO:
        return unknown(f"the default of this release was not read; set {_V2}")
    if it.launch is None:
        return unknown(NO_LAUNCH)
    if not it.since("0.22.0"):
        return known("V1", f"no {_V2}, default of vLLM {it.release}")
    if it.config is None and not it.since("0.29.0"):
        return unknown(NO_CONFIG)
    default, models = _default_runner(it)
    if len(default) > 1:
        return Fact(default, f"the default of vLLM {it.release} depends on {models}; set {_V2} to be sure")
    if it.launch.not_read:
        return it.option("speculative-config")
    return _unless_asked_otherwise(it, default[0], models)


def _default_runner(it: Deployment) -> tuple[tuple[str, ...], str]:
    """The model runner where no option decides, or both of them, and the models it is the default of, or what decides."""
    architecture = it.architecture() or ""
    from_amd, below_amd = V1_ON_AMD.get(architecture, ("", ""))
    if from_amd and it.since(from_amd) and not it.since(below_amd) and (it.gpu is None or it.gpu.maker != NVIDIA):
        return (("V1",), f"{architecture} on {it.gpu}") if it.gpu and it.gpu.maker == "AMD" else (("V1", "V2"), "the GPU")
    if it.since("0.29.0"):
        return ("V2",), "all models"
    first, end = V2_BY_DEFAULT.get(architecture, ("", ""))
    listed = bool(first) and it.since(first) and not it.since(end)
    hybrid, dense = recurrent_layers(it).values == (ON,), _dense(it)
    if not it.since("0.24.0"):
        if listed and (dense is None or it.given("quantization")):
            return ("V1", "V2"), "whether the model is dense and not quantized"
        return (("V2",), architecture) if listed and dense and not quantization_of(it) else (("V1",), "this model")
    if hybrid and not (listed and it.since("0.27.0")):
        return ("V1",), "hybrid models"
    if listed:
        return ("V2",), architecture
    if not it.since("0.25.0"):
        return ("V1",), architecture or "this model"
    if dense is None or not architecture.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")):
        return ("V1", "V2"), "whether the model is dense and generates text"
    if architecture in ATTENTION_FREE or not dense:
        return ("V1",), architecture
    return ("V2",), "dense models"


#: Models without layers of attention
ATTENTION_FREE = "MambaForCausalLM", "FalconMambaForCausalLM", "Mamba2ForCausalLM"


def _counts_of_experts(text: Mapping[str, Any]) -> list[Any]:
    """The number of experts, by each name that config.json has for it."""
    return [text[name] for name in ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts") if name in text]


def _dense(it: Deployment) -> bool | None:
    """Whether the model has no experts; None where config.json leaves that to the model's class."""
    text = it.text_config()
    if counts := _counts_of_experts(text):
        return not counts[0]
    if text.get("kv_lora_rank") is not None:
        return False  # all models with MLA have experts but a few small ones, which say so
    called = f"{it.architecture()} {text.get('model_type')}".lower()
    if text.get("block_configs") or any(word in called for word in ("moe", "mixtral", "gptoss", "gpt_oss", "dbrx", "jamba")):
        return None
    return True


def _unless_asked_otherwise(it: Deployment, default: str, models: str) -> Fact:
    """The default, or what the options of this launch ask for instead."""
    assert it.launch is not None
    other = "V1" if default == "V2" else "V2"
    why = f"default of vLLM {it.release} for {models}"
    if default == "V1" and not it.since("0.25.0"):
        return known("V1", why)  # no option asked for V2
    may_be = Fact((default, other), f"{why}, unless an option needs {other}; set {_V2} to be sure")
    unheard = ", ".join(it.launch.not_understood) or (default == "V2" and it.moved_by("model runner", _RUNNER_SETTLED))
    unheard = unheard or ("--hf-overrides" if it.given(*_OTHER_MODEL) else "")
    if unheard:
        return Fact((default, other), f"{why}, unless {unheard} needs {other}; set {_V2} to be sure")
    method = _method(it)
    if default == "V1":
        if method == "dspark" and not it.since("0.29.0"):
            return known("V2", "--speculative-config.method dspark")
        if it.given(*MAY_NEED_V2) or method in ("", "dflash", "dspark"):
            return may_be
        return known("V1", why)
    if it.option("enable-dbo", OFF).values == (ON,):
        return known("V1", "--enable-dbo")
    taken = V2_TAKES_METHOD.get(method or "")
    if method in V2_NEVER_TAKES or (taken and not it.since(taken)):
        return known("V1", f"--speculative-config.method {method}, which Model Runner V2 of vLLM {it.release} does not take")
    pipeline = it.given("pipeline-parallel-size")
    if (
        (method is not None and not taken)
        or any(it.given(option) and not (end and it.since(end)) for option, end in MAY_NEED_V1.items())
        or (method == "eagle3" and pipeline and not it.since("0.30.0"))
        or (pipeline and it.option("distributed-executor-backend").values == ("external_launcher",))
    ):
        return may_be
    return known("V2", why)


def _method(it: Deployment) -> str | None:
    """--speculative-config.method, `mtp` for every name of it; None: no drafts; empty: not named."""
    name = it.option("speculative-config.method", "").values
    method = str(name[0]).lower() if name else ""
    if not method:
        return "" if it.given("speculative-config") else None
    return "mtp" if method.endswith("mtp") else method


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


#: What moves Model Runner V1 to graphs without attention, and V2 not
_TABLE_OF_DRAFTS = "speculative-config.num_speculative_tokens_per_batch_size"


def _full_graphs(it: Deployment) -> Fact:
    """Whether decode steps run in CUDA graphs that hold attention, too."""
    eager = it.option("enforce-eager", OFF)
    if eager.values == (ON,):
        return known(OFF, "--enforce-eager")
    level = it.given("optimization-level")
    if level or it.given("compilation-config"):
        mode = it.option("compilation-config.cudagraph_mode")
        if level or not mode.values:
            return unknown(f"--{'optimization-level' if level else 'compilation-config'} may choose the mode of CUDA graphs")
        return known(ON if "FULL" in str(mode.values[0]).upper() else OFF, f"{mode.why} {mode.values[0]}")
    if not eager.values:
        return eager
    by_runner = (_TABLE_OF_DRAFTS,) if _model_runner(it).values == ("V2",) else ()
    if moved := it.moved_by("graph mode", (*_GRAPHS_SETTLED, *by_runner)):
        return unknown(f"{moved} may choose the mode of CUDA graphs")
    if _graphs_one_token_alone(it):
        drafts = _speculative_decoding(it)
        if drafts.values != (OFF,):
            return Fact(
                (OFF,) if drafts.values else (), f"{drafts.why}: FLASHINFER on {it.gpu} has full graphs of one token alone"
            )
    return known(ON, "default from 0.11.0") if it.since("0.11.0") else unknown("the default of this release was not read")


def _graphs_one_token_alone(it: Deployment) -> bool:
    """Whether the attention backend has no full graphs of several tokens a request: FLASHINFER without kernels of TRT-LLM or
    XQA for them (`get_cudagraph_support` in v1/attention/backends/flashinfer.py of 0.11.0-0.33.0; 0.33.0: 1176)."""
    if it.gpu is None or it.gpu.maker != NVIDIA or attention_backend(it).values != ("FLASHINFER",):
        return False
    return it.gpu.generation < 9 or (it.gpu.generation == 9 and not it.since("0.30.0"))


def linear_attention(it: Deployment) -> Fact:
    """Whether layers keep a recurrent state by Gated DeltaNet, or what shares its metadata (Kimi Delta Attention)."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    kinds = text.get("layer_types") or ()
    if "linear_attention" in kinds or text.get("linear_num_value_heads") or text.get("linear_attn_config"):
        return known(ON, "config.json has layers of linear attention")
    return known(OFF, "config.json has no layers of linear attention")


def recurrent_layers(it: Deployment) -> Fact:
    """Whether the model is hybrid: layers of attention, and others that keep a recurrent state (Gated DeltaNet, Mamba …)."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    kinds = _kinds_of_layers(text)
    if kinds and all(kind.endswith("attention") and not kind.startswith("linear") for kind in kinds):
        return known(OFF, "config.json has layers of attention alone")
    if linear_attention(it).values == (ON,) or kinds & {"mamba", "mamba2", "hybrid", "conv"}:
        return known(ON, "config.json has layers with a recurrent state")
    names = [name for name in text if name.startswith(("mamba_", "ssm_", "hybrid_override_pattern"))]
    if 0 in (text.get("attn_type_list") or ()):
        names.append("attn_type_list")  # MiniMax: 0 is a layer of linear attention
    if not names and it.architecture() in MAMBA2 and it.architecture() not in ATTENTION_FREE:
        return known(ON, f"{it.architecture()} is hybrid")
    return known(ON, f"config.json has {names[0]}") if names else known(OFF, "config.json has no layers with a recurrent state")


def _kinds_of_layers(text: Mapping[str, Any]) -> set[str]:
    return {str(kind) for name in ("layer_types", "layers_block_type") for kind in text.get(name) or ()}


#: Architectures whose recurrent layers are Mamba2
MAMBA2 = (
    "BambaForCausalLM",
    "FalconH1ForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "Mamba2ForCausalLM",
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "Plamo2ForCausalLM",
    "Zamba2ForCausalLM",
)
#: Keys of config.json that only Mamba2 has: it has heads
_MAMBA2_KEYS = "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "mamba_headdim", "mamba_d_head", "mamba_head_dim"


def mamba2_layers(it: Deployment) -> Fact:
    """Whether layers keep a recurrent state by Mamba2."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text, architecture = it.text_config(), it.architecture()
    kinds = _kinds_of_layers(text)
    if kinds and all(kind.endswith("attention") for kind in kinds):
        return known(OFF, "config.json has layers of attention alone")
    if architecture in MAMBA2:
        return known(ON, f"{architecture} has layers of Mamba2")
    keys = [name for name in _MAMBA2_KEYS if text.get(name)]
    if keys:
        return known(ON, f"config.json has {keys[0]}")
    names = [name for name in text if name.startswith("hybrid_override_pattern")]
    if "mamba2" in kinds or names:
        return known(ON, f"config.json has {(names or ['layers of Mamba2'])[0]}")
    return known(OFF, "config.json has no layers of Mamba2")


#: Values of layer_types for layers that see a window of the last tokens
_WINDOWS = "sliding_attention", "sliding_window", "sliding", "local_attention", "local"
#: model_type of models whose class has a window where config.json has none
_WINDOW_OF_CLASS = "gemma2", "gemma3_text", "gemma3n_text", "gpt_oss"


def sliding_window_layers(it: Deployment) -> Fact:
    """Whether layers of attention see a window of the last tokens alone, so that the cache may free what is behind it."""
    if it.config is None:
        return unknown(NO_CONFIG)
    disabled = it.option("disable-sliding-window", OFF)
    if disabled.values == (ON,):
        return known(OFF, "--disable-sliding-window")
    found = _window_of_config(it.text_config())
    return disabled if found.values == (ON,) and it.launch is not None and not disabled.values else found


#: Methods of speculation whose layers have the target's blocks, or that have no layers
BLOCKS_OF_THE_TARGET = "none", "mtp", "ngram", "suffix", "medusa"


def blocks_beside_states(it: Deployment) -> Fact:
    """Whether some layers have shorter blocks than recurrent states. Which ones do, no option says."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if str(it.architecture()).startswith("Qwen4Exp") and not it.since("0.30.0"):  # later, such blocks do not count
        return known("shorter", f"{it.architecture()} keeps keys of sparse attention in blocks of their own")
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none" and it.given("speculative-config"):
        return unknown("--speculative-config without a method: the drafter's config.json decides")
    if not name.endswith(BLOCKS_OF_THE_TARGET):
        return unknown(f"{method.why} {name}: a drafter with a sliding window may have shorter blocks")
    windows = sliding_window_layers(it)
    if windows.values == (ON,):
        return unknown(f"{windows.why}: their blocks may be shorter")
    return known("as long", "no layers with blocks of another length are known of it")


def _window_of_config(text: Mapping[str, Any]) -> Fact:
    kinds = _kinds_of_layers(text)
    if kinds & set(_WINDOWS):
        return known(ON, f"config.json has layers of {min(kinds & set(_WINDOWS))}")
    if text.get("use_sliding_window") is False:
        return known(OFF, "config.json has use_sliding_window false")
    for name in ("sliding_window", "sliding_window_size", "swa_window_size"):
        value = text.get(name)
        sizes = value if isinstance(value, list) else [value]
        if any(isinstance(size, int) and size > 0 for size in sizes):
            if kinds and kinds <= {"full_attention", "attention"}:
                return known(OFF, "config.json has layers of full attention alone")
            return known(ON, f"config.json has {name}")
    if text.get("model_type") in _WINDOW_OF_CLASS and "sliding_window" not in text:
        return known(ON, f"default of {text['model_type']}")
    return known(OFF, "config.json has no sliding window")


def cached_states(it: Deployment) -> Fact:
    """Whether prefix caching is on for a hybrid model: by default from 0.28.0. 0.26.0 and 0.27 take it for supported and leave
    it off; up to 0.11.0 it was switched off where it was asked for, then up to 0.14.1 for models other than Mamba's."""
    name = "enable-prefix-caching"
    if it.release is None and not it.given(name):
        return unknown(f"whether hybrid models cache prefixes by default depends on the release; set --{name}")
    default = ON if it.since("0.28.0") else OFF
    fact = it.option(name, default)
    if it.given(name) and fact.values == (ON,) and it.release is not None and not it.since("0.15.0"):
        if not it.since("0.11.1"):
            return known(OFF, f"vLLM {it.release} caches no prefixes of hybrid models")
        if linear_attention(it).values == (ON,):
            return known(OFF, f"vLLM {it.release} caches no prefixes of models with linear attention")
    return (
        fact if it.given(name) or not fact.values else known(default, f"no --{name}, default of vLLM {it.release} for hybrids")
    )


def _kv_connector(it: Deployment) -> Fact:
    """Whether KV is moved in or out: disaggregated prefill, offloading, LMCache …"""
    name = "kv-transfer-config"
    if it.given(name, "kv-offloading-size") or (it.launch and any(name in word for word in it.launch.not_understood)):
        return known(ON, "--kv-offloading-size" if it.given("kv-offloading-size") else f"--{name}")
    return it.option(name, OFF)


#: Value of --speculative-config.method -> first release that schedules ahead with such drafts
_ASYNC_TAKES_METHOD = {
    "eagle": "0.14.0",
    "eagle3": "0.14.0",
    "mtp": "0.14.0",
    "extract_hidden_states": "0.18.0",
    "ngram_gpu": "0.18.0",
    "dflash": "0.20.0",
    "dspark": "0.25.0",
    "draft_model": "0.28.0",
}


def async_scheduling(it: Deployment) -> Fact:
    """Whether a step is scheduled before the one before it has its tokens: by default from 0.14.0."""
    name = "async-scheduling"
    if it.given(name):
        return it.option(name)
    if it.release is None or it.release > READ_UP_TO:
        return unknown(f"the default of this release was not read; set --{name}")
    fact = it.option(name, ON if it.since("0.14.0") else OFF)
    if fact.values != (ON,):
        return fact
    default = known(ON, f"default of vLLM {it.release}")
    may_be = f"default of vLLM {it.release}, unless %s; set --{name} to be sure"
    backend = str(it.option("distributed-executor-backend", "mp").values[0])
    if backend not in ("mp", "uni", "external_launcher") or it.given("data-parallel-backend"):
        return Fact((ON, OFF), may_be % "the executor does not take it")
    if it.given("runner", "convert", "task", "speculative-config.disable_padded_drafter_batch"):
        return Fact((ON, OFF), may_be % "an option does not take it")
    pipeline = it.number("pipeline-parallel-size", 1).values != (1,)
    if pipeline and not it.since("0.15.0"):
        return known(OFF, f"--pipeline-parallel-size, vLLM {it.release}")
    if it.release == Version("0.16.0") and cached_states(it).values != (OFF,) and recurrent_layers(it).values != (OFF,):
        cached = cached_states(it).values == (ON,) and recurrent_layers(it).values == (ON,)
        return known(OFF, f"vLLM {it.release}, cached prefixes of a hybrid model") if cached else unknown(NO_CONFIG)
    runner = _model_runner(it).values
    if it.since("0.33.0") and runner == ("V2",):
        return default
    method = _method(it)
    first = _ASYNC_TAKES_METHOD.get(method or "")
    on_v1 = None
    if method == "":
        on_v1 = "drafts are of a method that does not take it"
    elif method is not None and not (first and it.since(first)):
        on_v1 = f"--speculative-config.method {method} does not take it"
    elif pipeline and it.since("0.31.0"):
        on_v1 = "pipeline parallelism runs on Model Runner V1" if runner != ("V2",) else None
    if on_v1 is None:
        return default
    certain = method != "" and (runner == ("V1",) or (method is not None and not it.since("0.33.0")))
    return known(OFF, f"vLLM {it.release}: {on_v1}") if certain else Fact((ON, OFF), may_be % on_v1)


def hidden_states_drafter(it: Deployment) -> Fact:
    """Whether drafts are made of the target's hidden states (EAGLE, MTP, DFlash), as `use_eagle` of the engine says."""
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none":
        return unknown("--speculative-config without a method") if it.given("speculative-config") else known(OFF, method.why)
    return known(ON if name in _OF_HIDDEN_STATES or name.endswith("mtp") else OFF, f"{method.why} {name}")


def tokens_drafted(it: Deployment) -> Fact:
    """Whether a step drafts one token or several, where it drafts."""
    count = it.number("speculative-config.num_speculative_tokens")
    if not count.values:
        return Fact(("one", "several"), "the drafter's config.json decides without num_speculative_tokens")
    return known("several" if int(count.values[0]) > 1 else "one", f"{count.why} {count.values[0]}")


def _drafts_of_a_step(it: Deployment) -> Fact:
    """How many tokens a step drafts, by any method."""
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    if not it.given("speculative-config"):
        return known("none", method.why)
    return tokens_drafted(it)


def _speculative_decoding(it: Deployment) -> Fact:
    if it.given("speculative-config"):
        return known(ON, "--speculative-config")
    return it.option("speculative-config", OFF)


def quantization_of(it: Deployment) -> Mapping[str, Any]:
    """The checkpoint's quantization_config; empty where it has none."""
    assert it.config is not None
    return it.config.get("quantization_config") or it.text_config().get("quantization_config") or {}


def prefixes_of(it: Deployment) -> tuple[str, ...]:
    """What the names of the layers may begin with; of a model with several parts it depends on its class."""
    return ("model.",) if it.text_config() is it.config else ("language_model.model.", "model.")


def formats_of(it: Deployment, projection: str) -> Fact:
    """The formats of compressed-tensors in which the layers keep a projection of attention; "as it is" for layers left out."""
    prefixes = prefixes_of(it)
    found = [
        compressed_tensors.formats(quantization_of(it), compressed_tensors.names(it.text_config(), projection, prefix))
        for prefix in prefixes
    ]
    if any(formats != found[0] for formats in found):
        return unknown(f"compressed-tensors: which of {' and '.join(prefixes)} names of layers begin with")
    return Fact(tuple(sorted(kept or "as it is" for kept in found[0])), "compressed-tensors")


def kv_cache_dtype(it: Deployment) -> Fact:
    asked = it.option("kv-cache-dtype", "auto")
    if asked.values != ("auto",):
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    schemes = [name for name, value in quantization_of(it).items() if name.startswith("kv_cache") and value]
    return unknown(f"--kv-cache-dtype auto may follow the checkpoint's {schemes[0]}") if schemes else asked


def _kv_cache_scales(it: Deployment) -> Fact:
    """Who loads the scales of a quantised KV cache, where the checkpoint has some."""
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = quantization_of(it)
    method = str(quantization.get("quant_method") or "none")
    if method == "compressed-tensors" and quantization.get("kv_cache_scheme"):
        return known("compressed-tensors", "kv_cache_scheme of quantization_config")
    if method != "none" and it.release is not None and str(it.release) == "0.10.2":
        return unknown(f"quantization {method}: vLLM 0.10.2 forgets the query's scale of any checkpoint that has one")
    return known("others", f"quantization {method}, no kv_cache_scheme of compressed-tensors")


def _flashinfer_kernels(it: Deployment) -> Fact:
    """Whose kernels FLASHINFER runs. Those of TRT-LLM, on Blackwell, have scales of their own."""
    if it.gpu is not None and it.gpu.maker != NVIDIA:
        return known("others", f"{it.gpu}; FlashInfer is NVIDIA's")
    backend = attention_backend(it)
    if not backend.values:
        return backend
    why = f"{backend.why} {backend.values[0]}"
    if backend.values[0] != "FLASHINFER":
        return known("others", why)
    if it.gpu is None:
        return unknown(f"{why}: {NO_GPU}")
    if it.gpu.generation == 10:
        return unknown(f"{why}: TRT-LLM's kernels on {it.gpu}, but where they do not serve the model")
    return known("FlashInfer", f"{why} on {it.gpu}")


def _heads_of_a_rank(it: Deployment) -> Fact:
    """KV heads of attention on each rank; one where there are more ranks than heads."""
    if it.config is None:
        return unknown(NO_CONFIG)
    ranks, heads = it.number("tensor-parallel-size", 1), it.text_config().get("num_key_value_heads")
    if not ranks.values or not isinstance(heads, int):
        return unknown(ranks.why if heads else "config.json has no num_key_value_heads")
    return known(max(1, heads // int(ranks.values[0])), f"{heads} in config.json, {ranks.why}")


def ranks_of_tower(it: Deployment) -> Fact:
    """Ranks that split the vision tower, where the model has one. In one mode each has all of it."""
    mode = it.option("mm-encoder-tp-mode", "weights")
    if not mode.values:
        return mode
    return known(1, f"{mode.why} data") if mode.values == ("data",) else it.number("tensor-parallel-size", 1)


def _lock_step(it: Deployment) -> Fact:
    """Whether data parallel ranks run a step together: those of a model with experts."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    if counts := _counts_of_experts(text):
        return known(ON if counts[0] else OFF, f"config.json names {counts[0]} experts")
    if text.get("kv_lora_rank") is not None:
        return known(ON, "config.json has kv_lora_rank, as models with experts do")
    return unknown("config.json names no experts")


def dynamic_ntk(it: Deployment) -> Fact:
    """Whether positions are scaled by dynamic NTK with a factor, as InternLM's."""
    if it.config is None:
        return unknown(NO_CONFIG)
    for name in ("rope_scaling", "rope_parameters"):
        rope = it.text_config().get(name)
        if isinstance(rope, Mapping) and rope.get("rope_type", rope.get("type")) == "dynamic" and "alpha" not in rope:
            return known(ON if rope.get("factor", 1) != 1 else OFF, f"{name} of config.json is dynamic")
    return known(OFF, "config.json has no dynamic rope_scaling")


#: Architectures whose states may be cached at every block: SupportsMambaPrefixCaching of 0.11.1-0.28.0
_STATES_AT_EVERY_BLOCK = (
    *(name for name in MAMBA2 if name != "Plamo2ForCausalLM"),
    *("FalconMambaForCausalLM", "JambaForCausalLM", "JambaForSequenceClassification", "MambaForCausalLM"),
)


def states_cache_mode(it: Deployment) -> Fact:
    """Which states prefix caching keeps: `all` of them at every block, those of `align`ed chunks, or `none`."""
    cached, asked = cached_states(it), it.option("mamba-cache-mode", "none")
    if cached.values == (OFF,):
        return known("none", cached.why)
    if not cached.values or it.config is None or not asked.values:
        return unknown(cached.why if not cached.values else NO_CONFIG if it.config is None else asked.why)
    architecture = it.architecture()
    if architecture not in _STATES_AT_EVERY_BLOCK or asked.values == ("align",):
        return known("align", f"{asked.why}, {architecture}")
    if asked.values == ("none",) and it.release is None:
        return unknown("the default of --mamba-cache-mode depends on the release")
    every = asked.values == ("all",) or not it.since("0.28.0")
    return known("all" if every else "align", f"{asked.why}, {architecture}")


def yarn_not_rounded(it: Deployment) -> Fact:
    """Whether config.json asks for YaRN between bounds that are not rounded to whole dimensions, as the published gpt-oss."""
    if it.config is None or it.given("rope-scaling") or it.given("hf-overrides.rope_scaling"):
        return unknown(NO_CONFIG if it.config is None else "options replace the checkpoint's RoPE settings")
    asked = [rope for rope in _ropes(it) if "yarn" in (rope.get("rope_type"), rope.get("type"))]
    return known(ON if any(rope.get("truncate") is False for rope in asked) else OFF, "`truncate` of YaRN in config.json")


def _ropes(it: Deployment) -> list[Mapping[str, Any]]:
    """The settings of RoPE in config.json: one, or one for each kind of layer."""
    text = it.text_config()
    found = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return [value for value in found.values() if isinstance(value, Mapping)] or [found]


def reads_config_json(it: Deployment) -> Fact:
    """Whether the engine reads config.json, and not Mistral's params.json."""
    kind = it.option("config-format", "auto")
    if not kind.values or kind.values != ("auto",):
        return known(OFF if kind.values == ("mistral",) else ON, f"{kind.why} {kind.values[0]}") if kind.values else kind
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.architecture() not in ("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"):
        return known(ON, f"{it.architecture()}, {kind.why}")
    return Fact((ON, OFF), f"{kind.why}: Mistral's params.json is read where it lies beside config.json")


def hybrid_manager(it: Deployment) -> Fact:
    """Whether each kind of attention layer has KV blocks of its own, so that windows free theirs (hybrid KV cache manager)."""
    name, connector = "disable-hybrid-kv-cache-manager", _kv_connector(it)
    asked = it.option(name, "none")
    if it.given(name) or not asked.values:
        return Fact(tuple(OFF if value == ON else ON for value in asked.values), asked.why)
    if it.release is None or not it.since("0.11.1"):
        return unknown(f"the default of this release was not read; set --{name}")
    if it.config is not None and it.text_config().get("attention_chunk_size"):
        if hidden_states_drafter(it).values != (OFF,):
            return known(OFF, "chunks of local attention, with drafts from hidden states")
        if not it.since("0.14.0") and not it.truth("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"):
            return known(OFF, f"default of vLLM {it.release} for chunks of local attention")
    if it.given("kv-events-config") and not it.since("0.20.0"):
        return known(OFF, "--kv-events-config")
    if connector.values != (OFF,):
        return unknown(connector.why) if it.since("0.22.0") or not connector.values else known(OFF, connector.why)
    return known(ON, f"default of vLLM {it.release}")


def connector_name(it: Deployment) -> Fact:
    """The class that moves KV in or out, as `_post_init_kv_transfer_config` of 0.13.0-0.33.0 leaves it; off: none."""
    if it.given("kv-offloading-size"):
        backend = it.option("kv-offloading-backend", "native" if it.since("0.14.0") else "none").values[0]
        if backend == "native":
            simple = it.since("0.19.0") and it.truth("VLLM_USE_SIMPLE_KV_OFFLOAD")
            return known("SimpleCPUOffloadConnector" if simple else "OffloadingConnector", "--kv-offloading-size")
        if backend == "lmcache":
            name = "LMCacheMPConnector" if it.since("0.23.0") else "LMCacheConnectorV1"
            return known(name, "--kv-offloading-backend lmcache") if it.release else unknown("--kv-offloading-backend lmcache")
    fact = it.option("kv-transfer-config.kv_connector", OFF)
    if fact.values == ("MultiConnector",):
        return unknown("which connectors MultiConnector holds")
    moved = _kv_connector(it)
    return unknown(moved.why) if fact.values == (OFF,) and moved.values != (OFF,) else fact


#: Architecture -> first release that keeps its states as config.json's `mamba_ssm_cache_dtype`, or `mamba_ssm_dtype`, says
_STATES_BY_CONFIG = {
    "NemotronHForCausalLM": "0.13.0",
    "NemotronHPuzzleForCausalLM": "0.16.0",
    "NemotronH_Nano_VL_V2": "0.18.0",
    "Qwen3_5ForConditionalGeneration": "0.17.0",
    "Qwen3_5MoeForConditionalGeneration": "0.17.0",
}


def foreign_states(it: Deployment) -> Fact:
    """Whether recurrent states are kept in another format than KV, so that their bits may read as NaN in attention: up to
    0.22.1."""
    cache, asked = kv_cache_dtype(it), it.option("mamba-ssm-cache-dtype", "auto")
    if not cache.values or not asked.values or it.config is None:
        return unknown(cache.why or asked.why)
    if str(cache.values[0]).startswith("fp8"):
        return known(ON, cache.why)
    if asked.values != ("auto",):
        return known(ON if asked.values == ("float32",) else OFF, f"{asked.why} {asked.values[0]}")
    text, architecture = it.text_config(), it.architecture() or ""
    first = _STATES_BY_CONFIG.get(architecture)
    if first and it.since(first):
        dtype = text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype")
        return known(ON if dtype == "float32" else OFF, f"config.json keeps states as {dtype}")
    if it.option("mamba-cache-dtype", "auto").values == ("float32",):
        return known(ON, "--mamba-cache-dtype float32")
    kimi = architecture == "KimiLinearForCausalLM"
    return known(ON if kimi else OFF, architecture)


#: Connectors whose loads end in the step that needs them, by `get_num_new_matched_tokens` of 0.10.0-0.33.0; off: no connector
_LOADS_IN_STEPS = (
    *("DecodeBenchConnector", "ExampleConnector", "ExampleHiddenStatesConnector", "HiSparseConnector", "LMCacheConnectorV1"),
    *("P2pNcclConnector", "SharedStorageConnector", OFF),
)
#: Connectors with which the server that prefills loads nothing
_LOADS_TO_DECODE = "MooncakeConnector", "MoRIIOConnector", "NixlConnector", "NixlPullConnector", "NixlPushConnector"


def loads_beside_steps(it: Deployment) -> Fact:
    """Whether requests hold blocks and wait while the connector loads their KV, as others run."""
    name, role = connector_name(it), it.option("kv-transfer-config.kv_role", "none")
    if not name.values:
        return unknown(name.why)
    if name.values[0] in _LOADS_IN_STEPS:
        return known(OFF, f"{name.why} {name.values[0]}")
    if role.values == ("kv_producer",) and name.values[0] in _LOADS_TO_DECODE:
        return known(OFF, f"{role.why} kv_producer")
    return known(ON, f"{name.why} {name.values[0]}")


def experts(it: Deployment) -> Fact:
    """Whether the model is a mixture of experts."""
    dense = _dense(it) if it.config is not None else None
    if dense is None:
        return unknown("whether the model is dense" if it.config is not None else NO_CONFIG)
    return known(OFF if dense else ON, "config.json")


def _freed_by_windows(it: Deployment) -> Fact:
    """Whether layers that see a part of the tokens free the blocks behind it: beside full layers, the hybrid manager does."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.config.get("rswa_window"):
        return known(ON, "config.json has rswa_window")
    chunks = it.text_config().get("attention_chunk_size") or it.architecture() == "Llama4ForConditionalGeneration"
    windows = sliding_window_layers(it)
    if not chunks and windows.values != (ON,):
        return windows
    manager = hybrid_manager(it)
    if manager.values != (OFF,):
        return manager
    if chunks or "full_attention" in it.text_config().get("layer_types", ()):
        return known(OFF, f"{manager.why}, and some layers see all tokens")
    return unknown(f"{manager.why}: blocks are freed all the same if no layer sees all tokens, the drafter's included")


def _prefix_caching(it: Deployment) -> Fact:
    """Whether prefix caching is on: by default, but for hybrid models in some releases, and for some pooling models."""
    name = "enable-prefix-caching"
    fact = it.option(name, ON)
    if it.given(name) or not fact.values:
        return fact
    if (recurrent := recurrent_layers(it)).values != (OFF,):
        return cached_states(it) if recurrent.values else recurrent
    if named := next(filter(it.given, ("runner", "task", "convert")), None):
        return unknown(f"--{named} may leave prefix caching out; set --{name}")
    return known(ON, "on by default")


FACTS: Makers = {
    "attention": _attention,
    "GPU": maker,
    "MLA prefill backend": prefill_backend,
    "attention backend": attention_backend,
    "kernels of the attention backend": _flashinfer_kernels,
    "model runner": _model_runner,
    "engine core": _engine_core,
    "cached prefix": _cached_prefix,
    "decode context parallel size": lambda it: it.number("decode-context-parallel-size", 1),
    "KV cache dtype": kv_cache_dtype,
    "KV cache scales": _kv_cache_scales,
    "full CUDA graphs": _full_graphs,
    "linear attention": linear_attention,
    "recurrent layers": recurrent_layers,
    "cached prefixes of a hybrid model": cached_states,
    "prefix caching": _prefix_caching,
    "drafts from hidden states": hidden_states_drafter,
    "draft tokens of a step": _drafts_of_a_step,
    "speculative decoding": _speculative_decoding,
    "Mamba2 layers": mamba2_layers,
    "sliding-window layers": sliding_window_layers,
    "blocks that windows free": _freed_by_windows,
    "ranks in lock step": _lock_step,
    "data parallel ranks": lambda it: it.number("data-parallel-size", 1),
    "pipeline parallel size": lambda it: it.number("pipeline-parallel-size", 1),
    "KV heads of a rank": _heads_of_a_rank,
    "ranks of the vision tower": ranks_of_tower,
    "KV connector": _kv_connector,
    "async scheduling": async_scheduling,
    "dynamic NTK": dynamic_ntk,
    "cache mode of states": states_cache_mode,
    "config.json is read": reads_config_json,
    "bounds of YaRN that are not rounded": yarn_not_rounded,
    "hybrid KV cache manager": hybrid_manager,
    "full prompts reserved": lambda it: it.option("scheduler-reserve-full-isl", ON),
    "name of the KV connector": connector_name,
    "states in another format than KV": foreign_states,
    "loads beside steps": loads_beside_steps,
    "experts": experts,
}
