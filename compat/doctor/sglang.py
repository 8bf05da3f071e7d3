"""What decides the attention bugs of a sglang deployment. Defaults were read in the releases named beside them."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

from .condition import OFF, ON, Fact, known, unknown
from .deployment import NO_CONFIG, NO_GPU, Deployment, Makers, attention, either, maker, switch
from .gpus import AMD, NVIDIA

READ_UP_TO = Version("0.5.23")
_KIMI, _GLM = "KimiK25ForConditionalGeneration", "GlmMoeDsaForCausalLM"
#: Architecture -> first release that runs it as MLA (configs/model_config.py)
MLA_SINCE = {
    "DeepseekV2ForCausalLM": "0.5.1",
    "DeepseekV3ForCausalLM": "0.5.1",
    "DeepseekVL2ForCausalLM": "0.5.1",
    "KimiVLForConditionalGeneration": "0.5.1",
    "MiniCPM3ForCausalLM": "0.5.1",
    "LongcatFlashForCausalLM": "0.5.2",
    "DeepseekV32ForCausalLM": "0.5.3",
    "MistralLarge3ForCausalLM": "0.5.6.post1",
    "PixtralForConditionalGeneration": "0.5.6.post1",
    "Glm4MoeLiteForCausalLM": "0.5.8",
    _KIMI: "0.5.9",
    _GLM: "0.5.9",
    "BailingMoeV2_5ForCausalLM": "0.5.9",
    "Dots3NoteForCausalLM": "0.5.19",
    "Glm5NextForConditionalGeneration": "0.5.20",
    "HYV4ForCausalLM": "0.5.20",
}
#: Architecture -> first release that gives it trtllm_mla on SM100, where no attention backend is named at all
TRTLLM_MLA_SINCE = {
    "DeepseekV3ForCausalLM": "0.5.3.post2",
    "MistralLarge3ForCausalLM": "0.5.6.post1",
    "PixtralForConditionalGeneration": "0.5.6.post1",
    _KIMI: "0.5.9",
    _GLM: "0.5.9",
    "DeepseekV32ForCausalLM": "0.5.12",
    "LongcatFlashForCausalLM": "0.5.16",
}
#: Architectures without MLA that get what the release gives any such model, in every release
PLAIN = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
#: BERT-like models, whose tokens attend both ways
ENCODERS = (
    "BertModel", "BertForSequenceClassification", "Contriever", "XLMRobertaModel", "XLMRobertaForSequenceClassification",
)  # fmt: skip
#: Such models, and one with convolutions in between
BOTH_WAYS = (*ENCODERS, "Lfm2BidirectionalModel")
#: Those with the vision encoder of Qwen3-VL, the only one that has graphs on Ascend
QWEN3_VL = (
    "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "InternS1ProForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration",
)  # fmt: skip
#: Architectures whose EAGLE drafts come from several layers, by a worker of their own
LAYERED_DRAFTS = "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"
#: Architectures with sliding-window layers -> first release that gives them fa3 on Hopper, where no backend is named; elsewhere
#: they get what the release gives any model without MLA. Their window layers never have a KV pool of their own
#: (disable_hybrid_swa_memory)
GEMMA = {"Gemma2ForCausalLM": "0.5.1", "Gemma3ForCausalLM": "0.5.8", "Gemma3ForConditionalGeneration": "0.5.1"}
#: Architectures with cross attention -> the same
VISION = {"MllamaForConditionalGeneration": "0.5.8"}
#: Architecture -> first release that runs it as encoder and decoder (is_encoder_decoder_model)
ENCODER_DECODER_SINCE = {
    "MllamaForConditionalGeneration": "0.5.1",
    "WhisperForConditionalGeneration": "0.5.10",
    "MossVLForConditionalGeneration": "0.5.11",
}
#: Architecture -> first release from which its window layers have a KV pool of their own (is_hybrid_swa_model)
WINDOW_POOL_SINCE = {"GptOssForCausalLM": "0.5.8", "Step3p5ForCausalLM": "0.5.9", "Llama4ForConditionalGeneration": "0.5.8"}
#: Architecture -> (first release, backend by generation of NVIDIA's GPUs or by maker, else under None, source line) where no
#: backend is named at all. What a row does not hold, the release's common default decides
OWN_BACKENDS: dict[str, tuple[tuple[str, dict[int | str | None, str], str], ...]] = {
    "GptOssForCausalLM": (
        ("0.5.1", {9: "fa3", 10: "trtllm_mha", None: "triton"}, "server_args.py:2227 of 0.5.1"),
        ("0.5.10", {9: "fa3", 10: "trtllm_mha", AMD: "aiter", None: "triton"}, "server_args.py:2007 of 0.5.12.post1"),
    ),
    "Llama4ForConditionalGeneration": (
        ("0.5.8", {9: "fa3", 10: "trtllm_mha", AMD: "aiter", None: "triton"}, "server_args.py:1344 of 0.5.8"),
    ),
    "Qwen3NextForCausalLM": (
        ("0.5.8", {10: "triton"}, "server_args.py:1487 of 0.5.8"),
        ("0.5.10", {10: "triton or trtllm_mha"}, "server_args.py:2316 of 0.5.12.post1"),
    ),
    "Qwen3VLForConditionalGeneration": (("0.5.8", {}, "model_overrides/qwen3_vl.py:73 of 0.5.23"),),
    "Qwen3VLMoeForConditionalGeneration": (("0.5.8", {}, "model_overrides/qwen3_vl.py:73 of 0.5.23"),),
}
#: From here on these decode with flashinfer on Hopper, where no backend but that of prefill is named
_DECODE_APART = frozenset({"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"})
_DECODE_APART_SINCE = "0.5.20"  # model_overrides/qwen3_vl.py:132
#: Architecture -> (topk, steps) that speculative decoding takes where neither is named (auto_choose_speculative_params)
CHOSEN = {"LlamaForCausalLM": (4, 5), "DeepseekV3ForCausalLM": (1, 3), "DeepseekV2ForCausalLM": (1, 3)}
CHOSEN_UP_TO = Version("0.5.13.post1")
#: Architectures whose Mamba2 layers the engine tracks states of (ServerArgs._support_mamba_cache_extra_buffer)
MAMBA2 = frozenset({"FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"})
#: Architectures for which the engine chooses extra_buffer
_RECURRENT = {
    "BailingMoeV2_5ForCausalLM", "InternS2PreviewForConditionalGeneration", "MiniCPMV4_6ForConditionalGeneration",
    "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
}  # fmt: skip
#: Keys of config.json that models with recurrent layers have
_OF_RECURRENT = frozenset({"linear_num_value_heads", "linear_attn_config", "hybrid_override_pattern", "mamba_d_state"})
#: Architectures whose model hands its window on without the token itself, in every release that has them
_SHORT = frozenset(
    (
        *GEMMA, "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
        "GptOssForCausalLM",
    )
)  # fmt: skip
_TRACKING = ("extra_buffer", "extra_buffer_lazy")
#: Before, the default strategy is no_buffer (ServerArgs._handle_mamba_radix_cache)
TRACKS_BY_DEFAULT_SINCE = Version("0.5.14")
#: Backends that raise the size of a page, and the smallest that they take (ServerArgs, 0.5.14-0.5.15.post1)
_LEAST_PAGES = {"trtllm_mha": 16, "trtllm_mla": 32, "tokenspeed_mla": 32, "cutedsl_mla": 32, "flashmla": 64, "cutlass_mla": 128}
#: The sizes that they take from the launch line. Of others the engine makes 64; those that are missing here force one size
_TAKEN_PAGES = {"trtllm_mha": (16, 32, 64), "trtllm_mla": (32, 64), "tokenspeed_mla": (32, 64), "cutedsl_mla": (32, 64)}
#: From here on trtllm_mha takes pages of 128 tokens, too (overrides.py:2090 of 0.5.17)
_TRTLLM_MHA_128_SINCE = "0.5.17"
#: Those of them that do so in decode alone
_DECODE_PAGES = ("flashmla", "cutlass_mla")
#: Makers and generations of GPUs for which the engine chooses no size
_UNPAGED = {(NVIDIA, 8), (NVIDIA, 9)}
#: With a topk above 1 on the launch line, such releases take spec v1
SPEC_V2_OF_ONE_UP_TO = Version("0.5.12.post1")
#: From here on $SGLANG_ENABLE_SPEC_V2 decides whether steps overlap, and later nothing
_ALWAYS_SPEC_V2 = "0.5.13"
#: From here on the draft model prefills with the backend of its extend; with flashmla, which had no kind for it, later
_EXTEND_PREFILLS_SINCE, _FLASHMLA_EXTENDS_SINCE = "0.5.14", "0.5.16"
#: Algorithms that spec v2 is a mode of, and others that were read
EAGLE = ("EAGLE", "EAGLE3", "STANDALONE")
_NO_EAGLE = ("none", "NGRAM", "DFLASH", "DSPARK", "FROZEN_KV_MTP", "UNO")
#: Backends under which the engine switches the chunked prefix cache off, the releases that were read for it, and those in which
#: the backend of prefill decides, not `ServerArgs.attention_backend`
_NO_CHUNKED_PREFIX = frozenset({"triton", "torch_native", "flex_attention", "aiter"})
_SPARSE = frozenset({"nsa", "dsa"})
_CHUNKED_PREFIX_READ_FROM, _PREFILL_DECIDES_SINCE = "0.5.5", "0.5.18"
#: Backends that share code with trtllm_mla, which prefills beside cutedsl_mla where no --prefill-attention-backend is named.
#: Up to 0.5.22 the common backend prefills beside tokenspeed_mla; later that is another name of cutedsl_mla
_LIKE_TRTLLM = (("tokenspeed_mla",), ("cutedsl_mla",))
_TOKENSPEED_IS_CUTEDSL_SINCE = "0.5.23"
#: Options that the engine's code for a choice reads, too, and that decide nothing there: a fact has them, or they count only
#: beside another that is read
_BACKEND_SETTLED = (
    "attention-backend", "prefill-attention-backend", "decode-attention-backend", "kv-cache-dtype", "speculative-algorithm",
    "speculative-eagle-topk", "enable-hierarchical-cache", "hicache-io-backend", "disable-cuda-graph", "disable-radix-cache",
    "cuda-graph-config", "model-path", "tp-size", "dcp-size", "device", "enable-deterministic-inference",
)  # fmt: skip
_GRAPHS_SETTLED = (
    "attention-backend", "moe-a2a-backend", "cuda-graph-config", "disable-cuda-graph", "device", "load-format", "model-path",
    "enable-piecewise-cuda-graph", "disable-piecewise-cuda-graph",
)  # fmt: skip
BACKENDS = ("attention-backend", "prefill-attention-backend", "decode-attention-backend")


class Model(NamedTuple):
    """A row of sglang_models.json: what a release's source says of an architecture (scripts/doctor_corpus/sglang_tables.py)."""

    since: str
    window: str | None
    cap: str | None
    backend: str | None
    pool: bool | None
    line: str | None


@cache
def _models() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = json.loads(Path(__file__).with_name("sglang_models.json").read_bytes())
    return found


def model(it: Deployment) -> Model | None:
    """The row of the deployment's architecture in its release; None where none was read."""
    if it.release is None or it.release > READ_UP_TO:
        return None
    rows = [Model(*row) for row in _models().get(it.architecture() or "", ()) if it.since(row[0])]
    return rows[-1] if rows and rows[-1].line else None


def _attention(it: Deployment) -> Fact:
    return attention(it, it.architecture(), MLA_SINCE, "architecture")


def backend(it: Deployment, phase: str) -> Fact:
    """The attention backend of `phase` (prefill, decode): its own option, the common one, the release's default."""
    if it.given(own := f"{phase}-attention-backend"):
        asked = it.option(own)
        if phase == "prefill" and _accepted(it, asked) != asked:  # the engine tests the others alone
            return unknown(f"what trtllm_mla does in prefill on {it.gpu} was not read")
        return _accepted(it, asked)
    chosen = _common(it)
    if phase == "prefill" and (decode := it.option("decode-attention-backend")).values in _LIKE_TRTLLM:
        why = f"{decode.why} {decode.values[0]}"
        if it.release is None or it.release > READ_UP_TO or not it.absent("prefill-attention-backend"):
            return unknown(f"what prefills with {why} was not read")
        if decode.values == ("tokenspeed_mla",) and not it.since(_TOKENSPEED_IS_CUTEDSL_SINCE):
            return chosen
        if it.gpu and (it.gpu.maker, it.gpu.generation) != (NVIDIA, 10):
            return known("refused", f"{why}: no server starts with it on {it.gpu}")
        return known("trtllm_mla", why)
    if phase == "decode" and it.given("enable-hierarchical-cache") and "fa3" in (chosen.values or ("fa3",)):
        return unknown("--enable-hierarchical-cache replaces fa3 in decode; name it with --decode-attention-backend")
    return _decode_apart(it) if phase == "decode" and _is_apart(it) else _with_the_cache(it, chosen)


def _is_apart(it: Deployment) -> bool:
    hopper = it.gpu is not None and it.gpu.generation == 9
    read = it.release is not None and it.release <= READ_UP_TO and it.absent("attention-backend")
    return hopper and read and it.architecture() in _DECODE_APART and it.since(_DECODE_APART_SINCE)


def _decode_apart(it: Deployment) -> Fact:
    return known("flashinfer", f"default of sglang {it.release}: decode of {it.architecture()} on {it.gpu}")


def _common(it: Deployment) -> Fact:
    """The backend of phases for which none is named: `ServerArgs.attention_backend`, of which equal names of both phases are
    one."""
    common = it.option("attention-backend")
    if it.given("prefill-attention-backend", "decode-attention-backend"):
        pair = {str(it.option(name).values) for name in BACKENDS[1:]}
        common = it.option(BACKENDS[1]) if len(pair) == 1 else common
    return _default(it) if it.absent("attention-backend") and not common.values else _accepted(it, common)


def _with_the_cache(it: Deployment, chosen: Fact) -> Fact:
    if chosen.values == ("fa3",) and "fp8_e5m2" in it.option("kv-cache-dtype", "auto").values:
        return known("triton", "--kv-cache-dtype fp8_e5m2, which fa3 does not take")
    return chosen


def _chunked_prefix_cache(it: Deployment) -> Fact:
    """Whether a prefill reads its cached prefix in chunks. The target's backend decides it for the draft model, too."""
    asked = switch(it.option("disable-chunked-prefix-cache", OFF), OFF)
    if asked.values != (ON,) or not it.since(_CHUNKED_PREFIX_READ_FROM):
        return asked
    decides = backend(it, "prefill") if it.since(_PREFILL_DECIDES_SINCE) else _with_the_cache(it, _common(it))
    if decides.values and (_NO_CHUNKED_PREFIX | _SPARSE).issuperset(decides.values):
        return known(OFF, f"{decides} has none")
    return asked


def _accepted(it: Deployment, asked: Fact) -> Fact:
    """The backend asked for, unless the engine refuses to start with it on this GPU."""
    asked = _or_trtllm(asked)
    if asked.values == ("trtllm_mla",) and it.gpu and it.gpu.generation < 10:
        return known("refused", f"{asked.why} trtllm_mla: no server starts with it on {it.gpu}")
    return asked


def _or_trtllm(asked: Fact) -> Fact:
    """A backend that takes over code of trtllm_mla may behave as it does."""
    if asked.values in _LIKE_TRTLLM:
        return Fact((*asked.values, "trtllm_mla"), f"{asked.why}, which shares code with trtllm_mla; how much was not read")
    return asked


def _default(it: Deployment) -> Fact:
    """The backend where none is named."""
    if it.release is None or it.release > READ_UP_TO:
        return unknown("the default of this release was not read; name it with --attention-backend")
    if it.given("enable-deterministic-inference") or it.option("device", "cuda").values != ("cuda",):
        return unknown("it depends on options that change the default; name it with --attention-backend")
    if moved := it.moved_by("attention backend", _BACKEND_SETTLED):
        return unknown(f"{moved} may change the default; name it with --attention-backend")
    kind = _attention(it)
    if not kind.values:
        return kind
    if len(kind.values) > 1:
        return unknown(kind.why)
    default = _default_of_mha(it) if kind.values == ("MHA",) else _default_of_mla(it, kind.values == ("sparse MLA",))
    return Fact(default.values, f"default of sglang {it.release}: {default.why}" if default.values else default.why)


def _default_of_mla(it: Deployment, sparse: bool) -> Fact:
    architecture = it.architecture() or ""
    if sparse:
        return Fact(("nsa", "dsa"), architecture) if it.since("0.5.5") else unknown("the default for sparse MLA was not read")
    own = TRTLLM_MLA_SINCE.get(architecture)
    sm100 = "trtllm_mla" if own and it.since(own) and not it.given(*BACKENDS) else "flashinfer"
    if it.gpu is None:
        return Fact(("fa3", sm100, "triton", "aiter"), NO_GPU)
    if it.gpu.maker == NVIDIA:
        return known({9: "fa3", 10: sm100}.get(it.gpu.generation, "triton"), f"{architecture} on {it.gpu}")
    return Fact(("aiter", "triton") if it.gpu.maker == AMD else ("triton", "intel_xpu"), f"{architecture} on {it.gpu}")


def _own_default(it: Deployment) -> Fact | None:
    """The backend that a release gives an architecture in a branch of its own; None where the common default decides."""
    architecture = it.architecture() or ""
    rows = [row for row in OWN_BACKENDS.get(architecture, ()) if it.since(row[0])]
    if not rows or it.gpu is None or it.given(*BACKENDS):
        return None
    _, chosen, line = rows[-1]
    key = it.gpu.generation if it.gpu.maker == NVIDIA else it.gpu.maker
    if (found := chosen.get(key, chosen.get(None))) is None:
        return None
    values = tuple(found.split(" or "))
    if len(values) > 1 and it.given("speculative-algorithm"):  # with pages of several slots, as the common default may choose
        values = (values[0],) if values[1] not in _default_by_gpu(it).values else (values[1],)
    return Fact(values, f"{architecture} on {it.gpu}, {line}")


def _common_default(it: Deployment) -> bool:
    """Whether the release's source gives the architecture what it gives any model without MLA."""
    architecture, row, text = it.architecture() or "", model(it), it.text_config()
    if architecture in {*PLAIN, *GEMMA, *VISION}:
        return True
    if row is None or architecture in ENCODER_DECODER_SINCE or {"learnable_sink", "dual_chunk_attention_config"} & set(text):
        return False
    alike = text.get("v_head_dim") in (None, text.get("head_dim"))
    read = row.backend == "common" and not row.pool
    return alike and (read or (architecture in OWN_BACKENDS and not it.given(*BACKENDS)))


def _default_of_mha(it: Deployment) -> Fact:
    if own := _own_default(it):
        return own
    if not _common_default(it):
        return unknown(f"the default for {it.architecture()} was not read; name it with --attention-backend")
    return _default_by_gpu(it)


def _default_by_gpu(it: Deployment) -> Fact:
    """The common default of models without MLA."""
    architecture, special = it.architecture(), {**GEMMA, **VISION}
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA:
        return Fact(("aiter",) if it.gpu.maker == AMD else (), f"{architecture} on {it.gpu}")
    topk, page = it.number("speculative-eagle-topk", 1), it.number("page-size", 1)
    one = not it.given("speculative-eagle-topk") or (topk.values == (1,) and page.values == (1,))
    why = f"{architecture} on {it.gpu}" + ("" if one else ", topk or page size above 1")
    if one and it.gpu.generation == 9:
        return known("fa3" if it.since(special.get(architecture or "", "0.5.1")) else "flashinfer", why)
    told = not it.given("speculative-algorithm") or it.given("speculative-eagle-topk")
    # 0.5.6.post1 has another test of what Blackwell is, and asks for no topk
    if one and it.gpu.generation in (10, 12) and it.since("0.5.6.post1") and not it.since("0.5.7"):
        return Fact(("trtllm_mha", "flashinfer"), why)
    if one and told and it.gpu.generation == 10 and it.since("0.5.7"):
        return known("trtllm_mha", why)
    return known("flashinfer", why)


def _algorithm(it: Deployment) -> Fact:
    """Upper case, as the engine makes it from 0.5.12 on; "none" where none is asked for."""
    fact = it.option("speculative-algorithm", "none")
    if not it.given("speculative-algorithm"):
        return fact
    name = str(fact.values[0]).upper()
    return known({"NEXTN": "EAGLE", "NONE": "none"}.get(name, name), f"{fact.why} NEXTN" if name == "NEXTN" else fact.why)


def _chosen(it: Deployment, option: str, place: int) -> Fact:
    """topk or the number of steps: as given, else as the release chooses both for an architecture."""
    if it.given(option):
        return it.number(option)
    algorithm = _algorithm(it)
    if algorithm.values == ("none",):
        return known(1, algorithm.why)
    if not it.absent(option) or not algorithm.values:
        return it.option(option)
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    if algorithm.values != ("STANDALONE",) and architecture in CHOSEN and it.release and it.release <= CHOSEN_UP_TO:
        return known(CHOSEN[architecture][place], f"sglang {it.release} chooses it for {architecture}")
    return unknown(f"sglang chooses it for {architecture}; name it with --{option}")


def _trees(it: Deployment) -> Fact:
    """Whether several drafts of one request stand at one position."""
    algorithm = _algorithm(it)
    if algorithm.values == ("NGRAM",):
        branches = it.number("speculative-ngram-max-bfs-breadth", 10)
        why = f"{branches.why}: n-gram speculation"
    else:
        branches = _chosen(it, "speculative-eagle-topk", 0)
        why = branches.why
    return Fact(tuple(ON if int(count) > 1 else OFF for count in branches.values), why)


def _speculative(it: Deployment) -> Fact:
    algorithm = _algorithm(it)
    return Fact(tuple(OFF if value == "none" else ON for value in algorithm.values), algorithm.why)


def _spec_v2(it: Deployment) -> Fact:
    variable = "SGLANG_ENABLE_SPEC_V2"
    algorithm = _algorithm(it)
    if algorithm.values and algorithm.values[0] in _NO_EAGLE:
        return known(OFF, f"speculative algorithm: {algorithm}")
    if algorithm.values and algorithm.values[0] not in EAGLE:
        return unknown(f"speculative algorithm: {algorithm}, which was not read")
    if it.release is None:
        return unknown("the default of this release was not read")
    if it.since(_ALWAYS_SPEC_V2):
        return known(ON, f"sglang {it.release} has no other")
    if it.launch is None and variable not in it.variables():
        return unknown(f"{algorithm.why or 'needs the launch command'}; {variable} is not set here")
    asked = it.truth(variable)
    if it.since("0.5.11"):
        given = it.number("speculative-eagle-topk", 1)
        if it.release <= SPEC_V2_OF_ONE_UP_TO and given.values and given.values[0] != 1:
            return known(OFF, f"{given.why} above 1")
        return known(ON if asked is not False else OFF, f"default of sglang {it.release}" if asked is None else variable)
    return known(ON if asked else OFF, f"no {variable}" if asked is None else f"{variable}={it.variables()[variable]}")


def _draft_layers(it: Deployment) -> Fact:
    """Whether several layers draft, one token each: a flag says so, or the engine for some architectures."""
    algorithm, asked = _algorithm(it), it.option("enable-multi-layer-eagle", OFF)
    if not algorithm.values or not set(algorithm.values) <= {"EAGLE", "EAGLE3"}:
        return known(OFF, f"speculative algorithm: {algorithm}") if algorithm.values else algorithm
    if asked.values != (OFF,) or algorithm.values != ("EAGLE",):
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    return known(ON if architecture in LAYERED_DRAFTS else OFF, f"{asked.why}, architecture {architecture}")


def _parts(it: Deployment) -> Fact:
    """Whether several ranks have a part of each layer."""
    size = it.option("tp-size", "1")
    why = " ".join((size.why, *map(str, size.values)))
    return Fact(tuple(OFF if value == "1" else ON for value in size.values), why)


def _groups_of_ranks(it: Deployment) -> Fact:
    """Whether groups of ranks attend to requests of their own."""
    dp, groups = it.option("enable-dp-attention", OFF), it.number("dp-size", 1)
    if not (dp.values and groups.values):
        return groups if dp.values else dp
    if dp.values == (ON,) and int(groups.values[0]) > 1:
        return known(ON, f"{dp.why}, {groups.why} {groups.values[0]}")
    return known(OFF, f"{dp.why or 'no --enable-dp-attention'}, {groups.why or 'no --dp-size'}")


def _named_for_drafts(it: Deployment, otherwise: Fact) -> Fact:
    """One backend may be named for all that a draft model does. "none" where the algorithm has no draft model."""
    if _algorithm(it).values == ("NGRAM",):
        return known("none", "n-gram speculation, which has no draft model")
    option = "speculative-draft-attention-backend"
    return otherwise if it.absent(option) else _or_trtllm(it.option(option))


def _draft_decode_backend(it: Deployment) -> Fact:
    """The backend of the draft model's own steps."""
    return _named_for_drafts(it, backend(it, "decode"))


def _draft_prefill_backend(it: Deployment) -> Fact:
    """The backend of the prefill of a draft model that is a part of the target; "none" without a draft model."""
    if _speculative(it).values == (OFF,):
        return known("none", "no speculative decoding")
    target, algorithm = backend(it, "prefill"), _algorithm(it).values
    named, extend = _named_for_drafts(it, target), _draft_extend_backend(it)
    flashmla = extend.values == ("flashmla",)
    since = _FLASHMLA_EXTENDS_SINCE if flashmla else _EXTEND_PREFILLS_SINCE
    if it.release is None and algorithm != ("NGRAM",) and not target.values == named.values == extend.values:
        return unknown("which backend prefills drafts in this release was not read")
    if not it.since(_PREFILL_DECIDES_SINCE) and target.values and _NO_CHUNKED_PREFIX.issuperset(target.values):
        if flashmla and it.since(_EXTEND_PREFILLS_SINCE) and not it.since(since):
            return unknown(f"how flashmla prefills drafts beside {target} was not read")
        return target  # by whose name the draft model's layers choose their way, too
    if algorithm and set(algorithm) <= set(EAGLE) and it.since(since):
        named = extend
    own = algorithm != ("EAGLE",) or not it.absent("speculative-draft-model-path")
    if own and named.values not in ((), ("none",), target.values):
        return unknown(f"{named} is for a draft model whose attention was not read")
    return named


def _draft_extend_backend(it: Deployment) -> Fact:
    """The backend with which the draft model takes over what was verified."""
    return _named_for_drafts(it, _verify_backend(it))


def _verify_backend(it: Deployment) -> Fact:
    """The backend with which the target model verifies what was drafted."""
    mode = it.option("speculative-attention-mode", "prefill")
    return backend(it, "decode" if mode.values == ("decode",) else "prefill") if mode.values else mode


def _cached_prefix(it: Deployment) -> Fact:
    """Whether a prefill can meet KV of its own request in the cache: by the radix cache, or by prefill in chunks."""
    radix = switch(it.option("disable-radix-cache", OFF), OFF)
    size = it.number("chunked-prefill-size", 1)
    chunked = Fact(tuple(OFF if int(value) <= 0 else ON for value in size.values), size.why)
    return either(radix, chunked)


def cuda_graphs(it: Deployment) -> Fact:
    """Whether decode steps run in CUDA graphs. From 0.5.14 on there are newer options beside the switch."""
    if it.given("cuda-graph-config"):
        return unknown("--cuda-graph-config may turn them off")
    graphs = it.option("cuda-graph-backend-decode", "default")
    if graphs.values == ("disabled",):
        return known(OFF, f"{graphs.why} disabled")
    role = ("disaggregation-mode",) if it.option("disaggregation-mode", "null").values == ("decode",) else ()
    if not it.given("disable-cuda-graph") and (moved := it.moved_by("graph mode", (*_GRAPHS_SETTLED, *role))):
        return unknown(f"{moved} may turn them off")
    return switch(it.option("disable-cuda-graph", OFF), OFF)


def _deterministic(it: Deployment) -> Fact:
    target = it.option("rl-on-policy-target", OFF)
    trained = Fact(tuple(value if value == OFF else ON for value in target.values), target.why)
    return either(it.option("enable-deterministic-inference", OFF), trained)


def _window_pool(it: Deployment) -> Fact:
    """Whether layers with a sliding window keep their KV in a pool of their own."""
    asked = switch(it.option("disable-hybrid-swa-memory", OFF), OFF)
    if asked.values != (ON,):
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in PLAIN or architecture in MLA_SINCE:
        return known(OFF, f"{architecture} has no window layers")
    if architecture in GEMMA and it.since("0.5.1"):
        return known(OFF, f"sglang {it.release} for {architecture}")
    row = model(it)
    if row and row.pool is False:
        return known(OFF, f"sglang {it.release} for {architecture}, {row.line}")
    if architecture == "GptOssForCausalLM" and (without := _no_pool_of_gpt_oss(it)):
        return without
    first = WINDOW_POOL_SINCE.get(architecture)
    if first and it.since(first) and not it.given("enable-hierarchical-cache"):
        return known(ON, f"sglang {it.release} for {architecture}")
    return unknown(f"whether this release gives window layers of {architecture} a KV pool of their own was not read")


def _no_pool_of_gpt_oss(it: Deployment) -> Fact | None:
    """Where early releases switch the pool off for this model, or may (server_args.py:1278-1290 of 0.5.8)."""
    drafts = _speculative(it)
    if not it.since("0.5.9") and drafts.values != (OFF,):
        return known(OFF, f"{drafts.why} with sglang {it.release}") if drafts.values else unknown(drafts.why)
    for phase in (backend(it, phase) for phase in ("prefill", "decode")) if not it.since("0.5.10") else ():
        if "trtllm_mha" in (phase.values or ("trtllm_mha",)):
            return known(OFF, str(phase)) if phase.values == ("trtllm_mha",) else unknown(phase.why)
    return None


def _window_layers(it: Deployment) -> Fact:
    """Whether a model that FlashInfer serves has layers with a sliding window."""
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in GEMMA:
        return known(ON, f"architecture {architecture}")
    if architecture in PLAIN or architecture in MLA_SINCE:
        return known(OFF, f"{architecture} has no window layers")
    found = _window_of_the_table(it)
    if found.values == ("none",):
        return known(OFF, found.why)
    return unknown(f"whether {architecture} has window layers on FlashInfer was not read")


def _window_of_the_table(it: Deployment) -> Fact:
    """The window that a model hands to the runner, by the table: "none", "a token short", or "whole" of a model with chunks."""
    row, text = model(it), it.text_config()
    why = f"{it.architecture()}, {row.line}" if row else ""
    if row and row.window == "short":
        return known("a token short", why)
    if row and row.window == "none":
        if text.get("attention_chunk_size"):
            return known("whole", f"{it.architecture()} attends in chunks")
        return unknown(why) if row.pool and text.get("sliding_window") else known("none", why)
    return unknown(why)


def _window_of_the_runner(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in _SHORT:
        return known("a token short", f"{architecture} hands it on without the token itself")
    if architecture in PLAIN or architecture in MLA_SINCE:
        return known("none", f"{architecture} has no window layers")
    found = _window_of_the_table(it)
    return found if found.values else unknown(f"no entry for the window of {architecture}")


def _encoder_decoder(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    first = ENCODER_DECODER_SINCE.get(architecture or "")
    if first and it.release is None:
        return unknown("the architectures of this release were not read")
    return known(ON if first and it.since(first) else OFF, f"architecture {architecture}")


def _kv_cache_scales(it: Deployment) -> Fact:
    """What becomes of a checkpoint's scales of the KV cache: "calibrated FP8", or "unused" by a cache of 16 bits; or "none"."""
    scales, dtype = _kv_cache_scheme(it), it.option("kv-cache-dtype", "auto")
    if scales.values == ("none",) or not dtype.values:
        return scales if dtype.values else dtype
    asked = str(dtype.values[0])
    why = f"{dtype.why} {asked}"
    if not asked.startswith(("fp8", "auto")):
        unused = asked in ("bf16", "bfloat16")
        return Fact(tuple({"unused" if unused else "none", *(() if scales.values else ("none",))}), f"{why}, {scales.why}")
    if not scales.values:
        return scales
    return (
        unknown(f"--kv-cache-dtype auto may follow {scales.why}")
        if asked == "auto"
        else known("calibrated FP8", f"{why}, {scales.why}")
        if asked == "fp8_e4m3"
        else unknown(f"what becomes of the scales with {why} was not read")
    )


def _kv_cache_scheme(it: Deployment) -> Fact:
    """Whether the checkpoint brings scales of the KV cache: "some" or "none"."""
    if it.given("quantization-param-path"):
        return unknown("--quantization-param-path may bring scales")
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = it.config.get("quantization_config") or it.text_config().get("quantization_config") or {}
    scheme = [name for name, value in quantization.items() if name.startswith("kv_cache") and value]
    if scheme:
        return known("some", f"{scheme[0]} of quantization_config")
    method = quantization.get("quant_method")
    if method and str(method).startswith("modelopt"):
        return unknown(f"quantization {method}, whose scheme of the KV cache lies in hf_quant_config.json")
    return known("none", "quantization_config has no scheme of the KV cache")


def _mamba2_layers(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    if architecture == "GraniteMoeHybridForCausalLM" and "mamba" not in (it.config.get("layer_types") or ()):
        return known(OFF, f"architecture {architecture} without mamba in layer_types")
    return known(ON if architecture in MAMBA2 else OFF, f"architecture {architecture}")


def _recurrent(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    if architecture in MAMBA2:
        return _mamba2_layers(it)
    if architecture in _RECURRENT:
        return known(ON, f"architecture {architecture}")
    if not _OF_RECURRENT.isdisjoint(it.text_config()):
        return unknown(f"whether states of architecture {architecture} are kept was not read")
    return known(OFF, f"architecture {architecture}")


def _tracked_states(it: Deployment) -> Fact:
    """Whether prefill keeps states of prefixes in buffers of their own."""
    radix = it.option("disable-radix-cache", OFF)
    if radix.values != (OFF,):
        return switch(radix, OFF)
    strategy = it.option("mamba-radix-cache-strategy", "auto")
    if strategy.values != ("auto",):
        return Fact(tuple(ON if value in _TRACKING else OFF for value in strategy.values), _said(strategy))
    if it.release is not None and it.release < TRACKS_BY_DEFAULT_SINCE:
        return known(OFF, f"default of sglang {it.release}")
    linear = it.option("linear-attn-backend", "triton")
    if linear.values and linear.values != ("triton",):
        return known(OFF, _said(linear))
    overlap, page = switch(it.option("disable-overlap-schedule", OFF), OFF), it.number("page-size", 1)
    paged = Fact(tuple(ON if int(size) > 1 else OFF for size in page.values), page.why)
    wanted = either(overlap, paged)
    if wanted.values == (OFF,) and it.given("speculative-algorithm"):
        return unknown("with speculation some GPUs track them without overlap, too")
    return wanted if linear.values or wanted.values == (OFF,) else linear


def _tokens_of_a_page(it: Deployment) -> Fact:
    for option in filter(it.given, BACKENDS):
        name = next(iter(it.option(option).values), None)
        if name == "fa4":
            return unknown(f"--{option} fa4 takes pages of 128 tokens on some GPUs")
        if name in _LEAST_PAGES and not (option == "prefill-attention-backend" and name in _DECODE_PAGES):
            page, taken = it.number("page-size", 1), _TAKEN_PAGES.get(str(name), ())
            taken += (128,) if name == "trtllm_mha" and it.since(_TRTLLM_MHA_128_SINCE) else ()
            if page.values and set(page.values) <= set(taken):
                return page
            return known(_LEAST_PAGES[str(name)], f"or more with --{option} {name}")
    if not it.given("attention-backend") and (it.gpu is None or (it.gpu.maker, it.gpu.generation) not in _UNPAGED):
        return unknown("the pages that the engine chooses here were not read; name --attention-backend")
    return it.number("page-size", 1)


def _said(fact: Fact) -> str:
    return f"{fact.why} {fact.values[0]}" if fact.values else fact.why


def _head_size(it: Deployment) -> Fact:
    """The width of a head, as rotary embedding gets it: with MLA that of the part that it turns."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    if text.get("kv_lora_rank") is not None or "qk_rope_head_dim" in text:
        name, size = "qk_rope_head_dim", text.get("qk_rope_head_dim")
    else:
        name, size = "head_dim", text.get("head_dim")
    if size is None and text.get("hidden_size") and text.get("num_attention_heads"):
        name, size = "hidden_size / num_attention_heads", text["hidden_size"] // text["num_attention_heads"]
    return known(size, name) if size else unknown(f"config.json has no {name}")


def _kv_heads(it: Deployment) -> Fact:
    """How many KV heads a rank holds, where all ranks share the layers' heads among them."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.given("enable-dp-attention", "dp-size", "attention-context-parallel-size", "attn-cp-size"):
        return unknown("how many ranks share the KV heads of a layer was not read")
    text, ranks = it.text_config(), it.number("tp-size", 1)
    heads = text.get("num_key_value_heads") or text.get("num_attention_heads")
    if not heads:
        return unknown("config.json has no num_key_value_heads")
    return Fact(tuple(max(1, int(heads) // int(rank)) for rank in ranks.values), f"{heads} KV heads, {ranks.why}")


def _adapters(it: Deployment) -> Fact:
    return known(ON, "--lora-paths") if it.given("lora-paths") else it.option("enable-lora", OFF)


def _decodes_beside(it: Deployment) -> Fact:
    """Whether the server that makes answers keeps states of former prompts, too. Of a pair, none does."""
    role = it.option("disaggregation-mode", "null")
    if role.values == ("null",) and it.given("disable-radix-cache"):
        return known(OFF, "--disable-radix-cache")
    return Fact(tuple(ON if value == "null" else OFF for value in role.values), role.why)


def _keeps_states(it: Deployment) -> Fact:
    """Whether states of prompts that have ended are kept for later ones."""
    if it.option("disaggregation-mode", "null").values == ("decode",):
        return known(OFF, "--disaggregation-mode decode")
    return known(OFF, "--disable-radix-cache") if it.given("disable-radix-cache") else known(ON, "the radix cache keeps them")


def _overlap_of_any_role(it: Deployment) -> Fact:
    """Whether steps overlap, of a server of any role: stages of a pipeline do not."""
    stages = it.number("pp-size", 1)
    if stages.values and stages.values != (1,):
        return known(OFF, f"{stages.why} {stages.values[0]}")
    overlaps = switch(it.option("disable-overlap-schedule", OFF), OFF)
    return overlaps if stages.values or overlaps.values == (OFF,) else stages


#: Flags of what gives keys of a server to others, or keys of others to it
_KEY_SHARERS = (
    "enable-hierarchical-cache", "enable-lmcache", "enable-flexkv", "radix-cache-backend",
    "enable-unified-cache-external-linker",
)  # fmt: skip


def _shared(it: Deployment) -> Fact:
    """Whether other servers, or a store that outlives this one, read or give keys."""
    half = it.option("disaggregation-mode", "null")
    if half.values != ("null",):
        return known(ON, half.why) if half.values else half
    named = next(filter(it.given, _KEY_SHARERS), None)
    return known(ON, f"--{named}") if named else known(OFF, "none is named")


def _chunks(it: Deployment) -> Fact:
    """Whether prompts that are long enough are computed in chunks."""
    if it.absent("chunked-prefill-size"):
        return known(ON, "--chunked-prefill-size is set by default")
    size = it.number("chunked-prefill-size")
    return Fact(tuple(ON if int(one) > 0 else OFF for one in size.values), size.why)


FACTS: Makers = {
    "attention": _attention,
    "GPU": maker,
    "prefill backend": partial(backend, phase="prefill"),
    "decode backend": partial(backend, phase="decode"),
    "draft decode backend": _draft_decode_backend,
    "draft prefill backend": _draft_prefill_backend,
    "draft extend backend": _draft_extend_backend,
    "verify backend": _verify_backend,
    "speculative decoding": _speculative,
    "speculative algorithm": _algorithm,
    "speculative topk": partial(_chosen, option="speculative-eagle-topk", place=0),
    "speculative steps": partial(_chosen, option="speculative-num-steps", place=1),
    "trees of drafts": _trees,
    "spec v2": _spec_v2,
    "several draft layers": _draft_layers,
    "prompts in chunks": _chunks,
    "groups of ranks that attend": _groups_of_ranks,
    "ranks that share a layer": _parts,
    "CUDA graphs": cuda_graphs,
    "cached prefix": _cached_prefix,
    "chunked prefix cache": _chunked_prefix_cache,
    "deterministic inference": _deterministic,
    "sliding-window KV pool": _window_pool,
    "sliding-window layers": _window_layers,
    "window of the runner": _window_of_the_runner,
    "encoder-decoder": _encoder_decoder,
    "KV cache scales": _kv_cache_scales,
    "Mamba2 layers": _mamba2_layers,
    "recurrent layers": _recurrent,
    "tracked Mamba states": _tracked_states,
    "head size": _head_size,
    "KV heads of a rank": _kv_heads,
    "tokens of a page": _tokens_of_a_page,
    "LoRA adapters": _adapters,
    "decode beside kept states": _decodes_beside,
    "kept recurrent states": _keeps_states,
    "steps overlap": _overlap_of_any_role,
    "others that share keys": _shared,
}
