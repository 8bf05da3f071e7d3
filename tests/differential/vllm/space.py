"""What can be drawn for vLLM. Imports no engine."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ..protocol import Known, Settings, Space

#: attention: (query heads, KV heads, head size) of the model
SHAPES = {"MHA": (2, 2, 64), "GQA": (4, 2, 32), "MQA": (4, 1, 64), "MLA": (2, 2, 192)}
#: FlashInfer's kernels are for heads of this size and more: vLLM refuses smaller ones on a GPU, and so does `plan`
_FLASHINFER_HEAD = 64
#: windows of the two layers
WINDOWS = {"none": (None, None), "all": (24, 24), "alternate": (24, None)}
WINDOW = 24
BACKENDS = {
    "FLASH_ATTN": "flash_attn.FlashAttentionBackend",
    "FLASHINFER": "flashinfer.FlashInferBackend",
    "TRITON_ATTN": "triton_attn.TritonAttentionBackend",
    "FLASHMLA": "mla.flashmla.FlashMLABackend",
    "FLASH_ATTN_MLA": "mla.flashattn_mla.FlashAttnMLABackend",
    "ROCM_AITER_UNIFIED_ATTN": "rocm_aiter_unified_attn.RocmAiterUnifiedAttentionBackend",
}
_MORE_FROM = 0, 19
V2_FROM = 0, 25  # the first release in which some models run on Model Runner V2 by default, and this harness runs it
_OF_MLA = {"FLASHMLA", "FLASH_ATTN_MLA"}
_INTERPRETED = {"TRITON_ATTN"}


def shape(settings: Settings) -> tuple[int, int, int]:
    """SHAPES with these settings."""
    heads, kv_heads, size = SHAPES[settings["attention"]]
    return heads, kv_heads, max(size, _FLASHINFER_HEAD) if settings["attention-backend"] == "FLASHINFER" else size


def deployment(settings: Settings) -> tuple[dict[str, Any] | None, str, list[str]]:
    """What `attnfix doctor` is told of a server: config.json, GPU, launch command. No config says what a model with sinks and
    recurrent states is, or one of these shapes with images."""
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": settings["dtype"]}
    if settings["attention"] == "MLA":
        config |= {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 512}
    if settings["sinks"]:
        config |= {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}
    if settings["recurrent"] != "none":
        config |= {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hybrid_override_pattern": "**MM"}
    if settings["windows"] != "none":
        config["sliding_window"] = WINDOW
    if settings["scales"] != "none":
        config["quantization_config"] = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}
    words = [f"VLLM_USE_V2_MODEL_RUNNER={int(not settings['former-model-runner'])}", "vllm", "serve", "m"]
    for name in _VALUES:
        words += [f"--{name}", str(settings[name])]
    words += [f"--{'' if settings[name] else 'no-'}{name}" for name in _SWITCHES]
    words += [f"-cc.cudagraph_mode={settings['cudagraph-mode']}", f"--{_CASCADE}"][: 1 + settings[_CASCADE]]
    if skipped := settings["kv-cache-dtype-skip-layers"]:
        words += ["--kv-cache-dtype-skip-layers", *skipped]
    if (method := settings["speculative-method"]) != "none":
        count = settings["num-speculative-tokens"]
        drafts: dict[str, Any] = {"method": method, "num_speculative_tokens": count}
        drafts |= {"model": "d"} if method == "eagle" else {}
        if method == "ngram":
            drafts["prompt_lookup_min"] = (least := settings["prompt-lookup-min"])
            drafts["prompt_lookup_max"] = max(least, 3)
        if settings["drafts-by-batch-size"]:
            few, many = min(2, settings["max-num-seqs"] - 1), settings["max-num-seqs"]
            drafts["num_speculative_tokens_per_batch_size"] = [[1, few, count], [few + 1, many, 0]]
        words += ["--speculative-config", json.dumps(drafts)]
    if settings["dummy-batches"]:
        words += ["--data-parallel-size", "2"]
    if settings["adapters"]:
        words += ["--enable-lora", "--max-loras", str(settings["max-loras"])]
        words += ["--specialize-active-lora"] if settings["specialize-active-lora"] else []
    nowhere = settings["images"] or (settings["sinks"] and settings["recurrent"] != "none")
    return None if nowhere else config, _GPUS[settings["capability"][0]], words


_CASCADE, _GPUS = "disable-cascade-attn", {9: "h100", 8: "a100"}
_SWITCHES = "enable-prefix-caching", "enable-chunked-prefill", "async-scheduling"
_VALUES = (
    "attention-backend", "dtype", "kv-cache-dtype", "block-size", "max-model-len", "max-num-batched-tokens", "max-num-seqs",
    "tensor-parallel-size", "decode-context-parallel-size", "cp-kv-cache-interleave-size",
)  # fmt: skip


def edges(settings: Settings) -> list[int]:
    found = {1, 2, settings["block-size"], settings["max-num-batched-tokens"], settings["max-model-len"]}
    if settings["windows"] != "none":
        found.add(WINDOW)
    return sorted(found)


def of_release(release: str) -> Settings:
    """Which of the model runners serves there: up to 0.24 the former one alone, from 0.29.0 it is asked for no more."""
    number = _number(release)
    if number < V2_FROM:
        return {"former-model-runner": True}
    return {"former-model-runner": False} if number >= (0, 29) else {}


def not_built(settings: Settings) -> str | None:
    """What of these settings this harness has on Model Runner V2 alone."""
    own = settings.get("recurrent", "none") != "none" or settings.get("speculative-method") in ("eagle", "mtp")
    if own or settings.get("dummy-batches"):
        return "recurrent states, drafters with layers and dummy batches are not built on the former model runner"
    return None


def _quantised(settings: Settings) -> str:
    """Which layers have an FP8 cache: "none" was asked to, "some" have, or "skipped", where all were left unquantised. A
    checkpoint's scales make it FP8, too."""
    if settings.get("kv-cache-dtype") != "fp8" and settings.get("scales", "none") == "none":
        return "none"
    # what is not said may be either: "some" refuses, so it has to be certain
    skipped = "sliding_window" in settings.get("kv-cache-dtype-skip-layers", ("sliding_window",))
    return "skipped" if skipped and settings.get("windows", "all") == "all" else "some"


def _in_one_group(settings: Settings) -> bool:
    """Whether a drafter's layer is for certain in one group with a layer of the model, so that one builder serves both: they
    keep the same, and no kind of layers of the model has one layer only, which would make every group one layer."""
    said = settings.get("windows"), settings.get("kv-cache-dtype-skip-layers")
    method = settings.get("speculative-method")
    if method not in ("eagle", "mtp") or said[0] not in ("none", "all") or said[1] is None:
        return False
    quantised = settings.get("kv-cache-dtype") != "auto" or settings.get("scales") != "none"
    alone = settings.get("recurrent") != "none" or said[0] != "none"
    if "0" in said[1] and quantised and alone:
        # Layer 0 keeps another dtype than layer 1. All of them may be in one group even so, and layer 1 is in the drafter's
        # builder then; not beside recurrent layers, and not if they have windows
        return False
    if method == "mtp":
        return True
    # EAGLE's head is not made as wide as FlashInfer's
    wide = SHAPES.get(settings.get("attention", ""), (0, 0, 0))[2] >= _FLASHINFER_HEAD
    window = said[0] == "all" or settings.get("draft-window") is False
    return wide and window and settings.get("draft-heads") == 1


def refused(release: str, settings: Settings) -> str | None:
    number, backend = _number(release), settings.get("attention-backend")
    if settings.get("adapters") and number < _MORE_FROM:
        return "up to 0.18 adapters cannot be kept to the layer that stands for theirs (target_modules)"
    if settings.get("images") and number < _MORE_FROM:
        return "images before 0.19 are not built"
    if backend == "ROCM_AITER_UNIFIED_ATTN" and number > (0, 19):
        return "from 0.20 on, vLLM calls AITER in a way that the stand-in does not know"
    if settings.get("speculative-method") == "ngram":
        if settings.get("async-scheduling") and (0, 12) <= number <= (0, 32):
            return "n-gram drafts and asynchronous scheduling, from 0.11.1 to 0.32"
        if settings.get("former-model-runner") is False and number <= (0, 29):
            return "n-gram drafts on Model Runner V2, up to 0.29"
    windows = settings.get("windows", "none") != "none" or settings.get("draft-window")
    if backend == "FLASHINFER" and windows and (0, 25) <= number <= (0, 29) and tuple(settings.get("capability", ())) == (9, 0):
        return "windows with FlashInfer on Hopper, from 0.25 to 0.29"
    ranks, hopper = settings.get("decode-context-parallel-size") == 2, tuple(settings.get("capability", ())) == (9, 0)
    if backend == "FLASHINFER" and ranks and hopper and number >= (0, 27) and _quantised(settings) == "some":
        return (
            "an FP8 cache on FlashInfer under decode context parallelism, on Hopper from 0.27: the first batch ends the engine "
            "(docs/upstream/vllm-dcp-fp8-query.md)"
        )
    return None


def impossible(settings: Settings) -> str | None:
    if settings.get("former-model-runner") and (why := not_built(settings)):
        return why
    if settings.get("decode-context-parallel-size") == 2:
        if settings.get("tensor-parallel-size") == 1:
            return "refused by every release: ranks of decode context parallelism are ranks of tensor parallelism"
        if settings.get("attention") in ("MHA", "GQA"):
            return "refused by every release: ranks of a group share their KV heads"
        if settings.get("windows", "none") != "none" or settings.get("draft-window"):
            return "refused by every release: windows are not sharded"
        if settings.get("attention-backend") in ("TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN"):
            return "refused by every release: these backends return no LSEs to combine the ranks by"
        if settings.get("cp-kv-cache-interleave-size", 1) > 1 and settings.get("speculative-method", "none") != "none":
            return "refused by every release: drafts beside tokens that are not dealt to the ranks one by one"
        if settings.get("draft-heads") == 2:
            return "ranks of a group share their KV heads, and nobody checks a drafter's"
        if settings.get("dtype") == "bfloat16":
            return "Triton's interpreter, which combines the ranks, does not compute in bfloat16"
    both = settings.get("attention"), settings.get("attention-backend")
    if None not in both and (both[0] == "MLA") != (both[1] in _OF_MLA):
        return "refused by every release: a backend is for MLA or for the rest"
    if settings.get("attention") == "MLA" or settings.get("attention-backend") in _OF_MLA:
        plain = {"windows": "none", "soft-cap": 0.0, "sinks": False}
        if any(settings.get(name, value) != value for name, value in plain.items()):
            return "refused by every release: MLA has no windows, soft caps and sinks"
        if settings.get("kv-cache-dtype") == "fp8" or settings.get("scales", "none") != "none":
            return "the stand-ins write no quantised latents"
    if settings.get("attention-backend") == "FLASHINFER" and settings.get("sinks"):
        return "FlashInfer has sinks with TRT-LLM's kernels alone, which are not in the space: refused by every release"
    if tuple(settings.get("capability", ())) == (8, 0):
        if settings.get("attention-backend") == "FLASH_ATTN" and (settings.get("sinks") or _quantised(settings) == "some"):
            return "refused by every release: FlashAttention 2 has no sinks and no FP8"
        if settings.get("attention-backend") in _OF_MLA or settings.get("attention") == "MLA":
            return "refused by every release: FlashMLA, and FlashAttention for MLA, need Hopper"
    quantised = _quantised(settings) != "none"
    if quantised and settings.get("attention-backend") == "FLASH_ATTN" and settings.get("dtype") == "float16":
        return "FlashAttention 3 writes bfloat16 for FP8 inputs: a float16 model ends with the kernel's error while it starts"
    # A model's sinks have its dtype. Under decode context parallelism float16 stands for bfloat16, which the interpreter lacks:
    # there sinks are bfloat16 beside it (server.py)
    alone = settings.get("sinks") and settings.get("decode-context-parallel-size") == 1
    if alone and settings.get("attention-backend") == "FLASH_ATTN" and settings.get("dtype") == "float16":
        return "FlashAttention 3 takes sinks of bfloat16 alone: a float16 model ends with the kernel's error while it starts"
    if settings.get("recurrent", "none") != "none" and (settings.get("attention") == "MLA" or both[1] in _OF_MLA):
        return "no model with Mamba2 has MLA"
    chunked = settings.get("enable-prefix-caching"), settings.get("enable-chunked-prefill")
    if settings.get("recurrent", "none") != "none" and chunked == (True, False):
        return "refused by every release: a prefix of a recurrent state is computed in chunks"
    if settings.get("adapters") == 0 and (settings.get("max-loras", 2) != 2 or settings.get("specialize-active-lora")):
        return "there are no adapters"
    if settings.get("images") and settings.get("recurrent", "none") != "none":
        return "images beside recurrent states are not built"
    if settings.get("prompt-lookup-min", 2) != 2 and settings.get("speculative-method", "ngram") != "ngram":
        return "there are no n-grams to look up"
    method = settings.get("speculative-method")
    plain = settings.get("draft-window") is not True and settings.get("draft-heads", 1) == 1
    if settings.get("drafts-by-batch-size") and (method == "none" or settings.get("former-model-runner")):
        return "a table of drafts by batch size is tried with drafts, on Model Runner V2"
    graphs = settings.get("cudagraph-mode", "NONE") != "NONE"
    if settings.get("drafts-by-batch-size") and settings.get("recurrent", "none") != "none" and graphs:
        return "refused by every release, by its own assertion (docs/upstream/vllm-mamba-dynamic-graphs.md)"
    if method in ("none", "ngram") and not plain:
        return "there is no drafter that has a layer"
    if method == "mtp" and (settings.get("draft-heads", 1) != 1 or settings.get("draft-window")):
        return "a head of the model has its layers' shape"
    if method == "mtp" and settings.get("attention", "MLA") != "MLA" and settings.get("recurrent", "mamba2") == "none":
        return "no model of this kind has a head for MTP"
    if settings.get("attention-backend") == "FLASHINFER" and settings.get("soft-cap") and _in_one_group(settings):
        return (
            "FlashInfer's layers of one builder share a soft cap: with a drafter that has none, the first batch ends the engine"
        )
    if method == "eagle" and settings.get("attention") == "MLA":
        return "EAGLE's drafter has no MLA here"
    if settings.get("attention-backend") == "FLASHMLA" and settings.get("block-size", 64) != 64:
        return "refused by every release: FlashMLA's pages have 64 tokens"
    limit = settings.get("max-model-len", 256)
    if settings.get("enable-chunked-prefill") is False and settings.get("max-num-batched-tokens", limit) < limit:
        return "refused by every release: a prompt has to fit into one step"
    slow = settings.get("attention-backend") in _INTERPRETED or settings.get("decode-context-parallel-size") == 2
    if limit == 512 and slow:
        return "Triton's interpreter takes minutes for it"
    if settings.get("attention-backend") in _INTERPRETED:
        if settings.get("dtype") == "bfloat16":
            return "Triton's interpreter does not compute in bfloat16"
        if settings.get("kv-cache-dtype") == "fp8" or settings.get("scales", "none") != "none":
            return "Triton's interpreter cuts FP8 off where a GPU rounds it"
    return None


_LAYER = re.compile(r"model\.layers\.(\d+)\.self_attn\.")
_LOCKED = re.compile(r"AssertionError: Workspace is locked but allocation from 'flash_attn\.py:\d+:_forward_with_dcp'")


def known(release: str, settings: Settings, wrong: str, kinds: Sequence[str], error: float) -> Known | None:
    """Where a layer is wrong, the bug has to be one of this layer and, with CUDA graphs, of this step: see each. What lies
    before a window has no weight: it is seen only where it is no number, and so is the result then.

    How long a captured graph's queries may be is not told: a step with one row of each request is right in any, and where some
    have more rows, whether they are too many for the graph shows when the case runs without it.
    """
    number, backend, own = _number(release), settings["attention-backend"], _LAYER.match(wrong)
    own_layer = own or ".mixer" in wrong
    layer = int(own[1]) if own and int(own[1]) < 2 else None  # of the model: a drafter has no sinks, and no layer skipped
    if settings["decode-context-parallel-size"] == 2 and (found := _on_ranks(number, settings, wrong, kinds, layer)):
        return found
    if settings["specialize-active-lora"] and settings["cudagraph-mode"] != "NONE" and "replayed" in kinds and own_layer:
        report = "graphs for fewer adapters than the rows of a step have (docs/upstream/vllm-lora-specialized-graphs.md)"
        return Known(report, {"specialize-active-lora": False})
    none = {"windows": "none", "draft-window": False}
    states_cached = settings["recurrent"] != "none" and settings["enable-prefix-caching"]
    beside = states_cached and any(settings[x] != none[x] for x in none)
    if backend == "FLASHINFER" and settings["soft-cap"] and _in_one_group(settings | none):
        none |= {"soft-cap": 0.0}  # which all layers of a builder share: without windows, it ends the engine
    lengths = backend == "FLASHINFER" or _quantised(settings) == "skipped"  # of blocks: those of windows are shorter
    if beside and lengths and number >= (0, 27) and ".mixer" in wrong:
        report = "blocks at which a hybrid model's chunks end (docs/upstream/vllm-mamba-chunk-blocks.md)"
        return Known(report, none)
    other = _of_other_dtype(settings, wrong) and any(_skipped(settings, at) for at in range(len(WINDOWS[settings["windows"]])))
    if backend == "FLASHINFER" and number < (0, 20) and layer is None and other:
        report = "layers that were left unquantised, planned as FP8 (docs/upstream/vllm-flashinfer-skipped-layer.md)"
        return Known(report, {"kv-cache-dtype-skip-layers": ()})
    windows = WINDOWS[settings["windows"]]
    windowed = windows[layer] is not None if layer is not None else settings["draft-window"] or settings["windows"] == "all"
    no_numbers = own and windowed and error == math.inf
    # Triton masks values, and FlashInfer's FA2 begins at the window; a tile of FlashAttention's, and of FlashInfer's on Hopper,
    # reaches into blocks before it. What these hold by then has to be of another type: a state, or keys of another dtype
    not_all = settings["kv-cache-dtype-skip-layers"] or settings["speculative-method"] == "eagle"
    other_type = settings["recurrent"] != "none" or (_quantised(settings) == "some" and not_all)
    tiles = backend == "FLASH_ATTN" or (backend == "FLASHINFER" and tuple(settings["capability"]) == (9, 0))
    if no_numbers and other_type and tiles and not settings["former-model-runner"] and V2_FROM <= number < (0, 33):
        what = "blocks that a window has freed, in the rows of its request (mended in 0.33.0)"
        # Without windows no layer is left unquantised for one, and the cache is FP8 then: states are left out instead, and the
        # other shape of a drafter, which no pages can hold beside the model's without them
        return Known(what, {"recurrent": "none", "draft-heads": 1} if _quantised(settings) == "skipped" else none)
    captured = settings["cudagraph-mode"] == "FULL" and not settings["former-model-runner"] and V2_FROM <= number < (0, 31)
    several = {"replayed", "fresh", "chunk", "cached", "verify"} & set(kinds)
    if captured and backend == "FLASH_ATTN" and layer is not None and "replayed" in several and len(several) > 1:
        report = "graphs of mixed batches, captured for queries as short as a dummy batch has them (mended in 0.31.0)"
        return Known(report, {"cudagraph-mode": "FULL_DECODE_ONLY"})
    return None


def _on_ranks(number: tuple[int, ...], settings: Settings, wrong: str, kinds: Sequence[str], layer: int | None) -> Known | None:
    """What is known of decode context parallelism. layer: of the model's own attention, where that is wrong."""
    flash, v2 = settings["attention-backend"] == "FLASH_ATTN", not settings["former-model-runner"] and number >= V2_FROM
    if settings["sinks"] and flash and layer is not None:
        return Known("sinks under decode context parallelism (docs/upstream/vllm-dcp-sinks.md)", {"sinks": False})
    fp8_output = _quantised(settings) != "none" and wrong.startswith("AssertionError: FP8 output")
    if (flash or settings["attention-backend"] == "FLASHINFER") and (_of_other_dtype(settings, wrong) or fp8_output):
        report = "an FP8 cache under decode context parallelism (docs/upstream/vllm-dcp-fp8-query.md)"
        return Known(report, {"kv-cache-dtype": "auto", "scales": "none"})
    if settings["speculative-method"] != "none" and ".mixer" in wrong:
        report = "drafts beside recurrent states under decode context parallelism (docs/upstream/vllm-dcp-mamba-drafts.md)"
        return Known(report, {"speculative-method": "none"})
    idle = settings["attention"] == "MLA" and settings["dummy-batches"] and v2 and number < (0, 30)
    if idle and wrong == "TypeError: 'NoneType' object is not subscriptable":
        return Known("dummy batches that lack this rank's lengths (mended in 0.30.0)", {"dummy-batches": False})
    # Where no request has a context, the builder leaves attention to it out, and the workspace for it is not made; the dummy
    # batch of a capture had none
    captured = flash and settings["cudagraph-mode"] != "NONE" and v2 and (0, 26) <= number < (0, 33)
    if captured and ((layer is not None and "replayed" in kinds) or _LOCKED.match(wrong)):
        return Known("graphs that are captured without a context on ranks (mended in 0.33.0)", {"cudagraph-mode": "NONE"})
    return None


def _of_other_dtype(settings: Settings, wrong: str) -> bool:
    """Whether a kernel was planned for another dtype than it is given, beside an FP8 cache."""
    return _quantised(settings) != "none" and "dtype" in wrong and wrong.startswith(("ValueError: ", "RuntimeError: "))


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def _skipped(settings: Settings, layer: int) -> bool:
    """Whether a layer of the model keeps its dtype in an FP8 cache."""
    said = settings["kv-cache-dtype-skip-layers"]
    return str(layer) in said or ("sliding_window" in said and WINDOWS[settings["windows"]][layer] is not None)


def crowd(settings: Settings) -> int | None:
    """Cascade attention is for eight requests or more, with a prefix of 256 tokens or more, in whole blocks."""
    several = settings["max-num-seqs"] == 16 and settings["max-model-len"] == 512
    return 272 if several and not settings["disable-cascade-attn"] else None


def often(settings: Settings) -> int | None:
    """A prompt as long as a verification, beside decodes without drafts."""
    return 1 + settings["num-speculative-tokens"] if settings["drafts-by-batch-size"] else None


SPACE = Space(
    axes={
        "attention-backend": tuple(BACKENDS),
        "attention": tuple(SHAPES),
        "dtype": ("bfloat16", "float16"),
        "windows": tuple(WINDOWS),
        "soft-cap": (0.0, 3.0),
        "sinks": (False, True),
        "kv-cache-dtype": ("auto", "fp8"),
        "scales": ("none", "checkpoint", "keys-values"),  # of a checkpoint: all, or none of queries, as most have it
        "kv-cache-dtype-skip-layers": ((), ("0",), ("sliding_window",)),
        "block-size": (16, 32, 64, 128),
        "max-model-len": (256, 512),
        "max-num-batched-tokens": (64, 16, 256, 512),
        "max-num-seqs": (4, 2, 16),
        "num-gpu-blocks": (64, 24),
        "enable-prefix-caching": (True, False),
        "enable-chunked-prefill": (True, False),
        "speculative-method": ("none", "ngram", "eagle", "mtp"),
        "num-speculative-tokens": (2, 3, 1),
        "drafts-by-batch-size": (False, True),  # as many for two requests or fewer, and none for more
        "tensor-parallel-size": (1, 2),
        "decode-context-parallel-size": (1, 2),
        "cp-kv-cache-interleave-size": (1, 4, 16),
        "cudagraph-mode": ("NONE", "FULL", "FULL_DECODE_ONLY"),
        "async-scheduling": (False, True),
        "capability": ((9, 0), (8, 0)),
        "layout": ("NHD", "HND"),
        "recurrent": ("none", "mamba2"),
        "draft-window": (False, True),
        "draft-heads": (1, 2),
        "dummy-batches": (False, True),
        "former-model-runner": (False, True),
        "disable-cascade-attn": (True, False),
        "adapters": (0, 3),  # of LoRA
        "max-loras": (2, 1),
        "specialize-active-lora": (False, True),
        "images": (False, True),
        "prompt-lookup-min": (2, 6),  # of n-gram drafts: with 6, most steps have none
    },
    edges=edges,
    limit=lambda settings: settings["max-model-len"],
    of_release=of_release,
    refused=refused,
    impossible=impossible,
    known=known,
    crowd=crowd,
    often=often,
    interpreted=lambda settings: settings["attention-backend"] in _INTERPRETED or settings["decode-context-parallel-size"] > 1,
)
