"""What can be drawn for sglang. Settings are flags of the engine, without their dashes, and the model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from packaging.version import Version

from ..protocol import Known, Settings, Space
from . import adapters, models

AXES: dict[str, tuple[Any, ...]] = {
    "model": tuple(models.MODELS),
    "attention-backend": ("fa3", "flashinfer", "triton", "torch_native", "trtllm_mla", "flashmla", "trtllm_mha"),
    "dtype": ("float16", "bfloat16"),
    "page-size": (1, 4, 16, 128),
    "chunked-prefill-size": (64, 16, -1, 128),
    "max-total-tokens": (2048, 320, 640),
    "max-running-requests": (8, 2),
    "disable-radix-cache": (False, True),
    "disable-overlap-schedule": (True, False),
    "enable-mixed-chunk": (False, True),
    "disable-cuda-graph": (True, False),
    "kv-cache-dtype": ("auto", "fp8_e4m3"),
    "scales": ("none", "checkpoint"),
    "quantization-param-path": (None, "scales"),
    "triton-attention-num-kv-splits": (8, 1),
    "speculative-algorithm": (None, "EAGLE"),
    "speculative-num-steps": (3, 1),
    "speculative-eagle-topk": (1, 2),
    "speculative-adaptive": (False, True),
    "speculative-attention-mode": ("prefill", "decode"),
    "speculative-draft-attention-backend": (None, "fa3", "flashinfer", "triton"),
    "prefill-attention-backend": (None, "fa3", "flashinfer", "triton"),
    "enable-unified-memory": (False, True),
    "swa-full-tokens-ratio": (0.8, 0.3),
    "latent-prefix": ("default", "chunks", "one-shot", "no-chunks", "no-ragged"),
    "flashinfer-use-paged": (False, True),
    "mamba-radix-cache-strategy": ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
    "mamba-track-interval": (32, 16, 128),
    "max-mamba-cache-size": (64, 12),
    "mamba-conv-dtype": ("model", "default"),  # the engine's default is bfloat16
    "adapters": (0, 2),
    "images": (False, True),
}
_OF_STATES = ("mamba-radix-cache-strategy", "mamba-track-interval", "max-mamba-cache-size")
_RENAMED = {"mamba-radix-cache-strategy": "mamba-scheduler-strategy"}  # as it was up to 0.5.13
#: "latent-prefix" -> the flags and variables of it: how a cached prefix of latents is attended to
_PREFIX: dict[str, dict[str, Any]] = {
    "default": {},
    "chunks": {"SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD": 0, "SGLANG_MAX_KV_CHUNK_CAPACITY": 32},
    "one-shot": {"SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD": 0},
    "no-chunks": {"disable-chunked-prefix-cache": True},
    "no-ragged": {"flashinfer-mla-disable-ragged": True},
}
#: graphs of decode steps alone, for up to four requests, and no kernel to be tuned; the flags' names depend on the release
_FIXED = {
    ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"): 4, ("cuda-graph-backend-prefill",): "disabled",
    ("disable-piecewise-cuda-graph",): True, ("disable-flashinfer-autotune",): True,
}  # fmt: skip
SCALE = 0.5  # of keys and values, where a file says so
#: settings that are no flag
_OURS = ("model", "scales", "latent-prefix", "flashinfer-use-paged", "mamba-conv-dtype", "adapters", "images")


def flags(settings: Settings, known: Callable[[str], bool]) -> list[str]:
    """The launch command's flags; `known` says whether the release has one of that name."""
    given = {name: value for name, value in settings.items() if name not in _OURS}
    if settings["model"] != "hybrid":
        given = {name: value for name, value in given.items() if name not in _OF_STATES}
    given |= {name: value for name, value in _PREFIX[settings["latent-prefix"]].items() if not name.isupper()}
    if speculates(settings):
        given["speculative-num-draft-tokens"] = drafted(settings)
    else:
        given = {name: value for name, value in given.items() if not name.startswith("speculative-")}
    if settings["adapters"]:
        given |= {"enable-lora": True, "max-loras-per-batch": adapters.SLOTS}
    for names, value in _FIXED.items():
        if name := next(filter(known, names), None):
            given[name] = value
    words: list[str] = []
    for name, value in given.items():
        if value is not False and value is not None:
            name = name if known(name) else _RENAMED.get(name, name)
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def environment(settings: Settings) -> dict[str, str]:
    """Variables of the engine's that are set."""
    given = {name: str(value) for name, value in _PREFIX[settings["latent-prefix"]].items() if name.isupper()}
    if settings["model"] == "hybrid" and settings["mamba-conv-dtype"] == "model":
        given["SGLANG_MAMBA_CONV_DTYPE"] = settings["dtype"]
    if settings["flashinfer-use-paged"]:
        given["SGLANG_FLASHINFER_USE_PAGED"] = "1"
    return given


def deployment(settings: Settings) -> tuple[dict[str, Any], str, list[str]]:
    """What `attnfix doctor` is told of a server: config.json, GPU, launch command. Flags are those of the newest release."""
    variables = [f"{name}={value}" for name, value in environment(settings).items()]
    words = [
        "sglang",
        "serve",
        "--model-path",
        "m",
        *flags(settings, lambda name: name in AXES or not name.startswith("cuda-")),
    ]
    config = models.config({**settings, "images": False})  # of what the model with images is made of
    if settings["scales"] == "checkpoint":
        config["quantization_config"] = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}
    if models.draft(settings):
        words += ["--speculative-draft-model-path", "m" if settings["model"] == "mla" else "d"]
    return config, "b200" if backends(settings) & {"trtllm_mla", "trtllm_mha"} else "h100", [*variables, *words]


def speculates(settings: Settings) -> bool:
    return settings.get("speculative-algorithm") is not None


def drafted(settings: Settings) -> int:
    """How many tokens a verification looks at."""
    return settings["speculative-num-steps"] * branches(settings) + 1


def drafts_by_batch(settings: Settings) -> dict[str, Any]:
    """The table of `--speculative-adaptive-config`: two and three requests have no drafts, fewer and more have them all."""
    steps = {"1": settings["speculative-num-steps"], "2": 0, "4": settings["speculative-num-steps"]}
    return {requests: {"candidate_steps": [count]} for requests, count in steps.items()}


def branches(settings: Settings) -> int:
    """How many rows a drafter's step has for a request: with more than one, drafts are trees."""
    return settings["speculative-eagle-topk"] if speculates(settings) else 1


def narrow(settings: Settings) -> Any:
    """The dtype that rows are drawn in, where the cache holds fewer bits than the model's."""
    import torch

    return {"fp8_e5m2": torch.float8_e5m2, "fp8_e4m3": torch.float8_e4m3fn}.get(settings.get("kv-cache-dtype", "auto"))


def rounds_weights(settings: Settings, mode: str) -> bool:
    """Whether a kernel in this mode ("extend", "decode", or another one) rounds weights to the dtype of the cache.

    Triton's do, for keys that they read from the cache. FlashAttention's do so on a GPU; what stands in its place does not.
    """
    given = {settings.get("attention-backend")}
    if mode == "extend":
        given = {settings.get("prefill-attention-backend")} - {None} or given
    elif mode != "decode":  # a verification's is chosen by another flag, and a drafter's by a third
        given = backends(settings)
    return "triton" in given and narrow(settings) is not None


def _edges(settings: Settings) -> list[int]:
    edges = [settings.get("page-size", 1), models.WINDOW]
    chunk = settings.get("chunked-prefill-size", -1)
    if settings.get("model") == "hybrid":
        edges += [models.STATES_CHUNK, settings.get("mamba-track-interval", 32)]
    return edges + ([chunk] if chunk > 0 else [])


def backends(settings: Settings) -> set[str]:
    """All that the server has."""
    given = {settings.get("attention-backend"), settings.get("prefill-attention-backend")}
    if speculates(settings):
        given.add(settings.get("speculative-draft-attention-backend"))
    return given - {None}


_LATENT_BACKENDS = {"trtllm_mla", "flashmla"}


def _impossible_on_latents(settings: Settings, used: set[str]) -> str | None:
    if settings.get("model") not in (None, "mla"):
        if used & _LATENT_BACKENDS:
            return "backends for latent attention alone"
        if settings.get("latent-prefix", "default") != "default":
            return "flags that say something to latent attention alone"
    if settings.get("model") == "mla" and used & {"torch_native", "trtllm_mha"}:
        return "torch_native is given other shapes by latent attention than it takes, and trtllm_mha is for heads of their own"
    if settings.get("model") == "mla" and speculates(settings):
        own, drafter = settings.get("attention-backend"), settings.get("speculative-draft-attention-backend")
        if own and drafter not in (None, own):
            return "up to 0.5.16 the model calls its drafter's backend in the way of the target's, and raises"
    if used & _LATENT_BACKENDS and settings.get("kv-cache-dtype") == "fp8_e4m3":
        return "kernels that rotate and quantise, which TRT-LLM's and FlashMLA's backends call for FP8, are not stood in for"
    if used & _LATENT_BACKENDS and settings.get("dtype") == "float16":
        return "stand-ins for TRT-LLM's and FlashMLA's kernels return bfloat16"
    return None


def _impossible_with_scales(settings: Settings, used: set[str]) -> str | None:
    """Scales of keys and values, of a checkpoint or from a file."""
    checkpoint, file = settings.get("scales") == "checkpoint", settings.get("quantization-param-path")
    if not (checkpoint or file):
        return None
    if checkpoint and file:
        return "the engine refuses a file of scales where the checkpoint has some"
    if settings.get("model") not in (None, "mha", "gqa") or settings.get("kv-cache-dtype") == "auto":
        return "scales are made for Llama alone, and tried with an FP8 cache"
    if speculates(settings):
        return "a drafter's checkpoint is not made, and its model takes no file"
    if "torch_native" in used and len(used) > 1:
        return (
            "torch_native writes and reads a cache without its scales: wrong where another backend has the prefill; written up"
        )
    return None


def _impossible_with_trees(settings: Settings, used: set[str]) -> str | None:
    model, page = settings.get("model"), settings.get("page-size", 1)
    if not settings.get("speculative-algorithm", "EAGLE"):
        return "trees are a drafter's"
    if used & {"flashmla", "trtllm_mla", "trtllm_mha"} or (model == "mla" and "flashinfer" in used):
        return "the engine refuses trees on these backends"
    if settings.get("enable-unified-memory"):
        return "the engine refuses trees in unified memory"
    if settings.get("speculative-adaptive"):
        return "the engine drafts trees of one size"
    if model in ("windows", "windows-sinks") and "fa3" in used and page > 1:
        return "the engine refuses trees on fa3 with windows and pages of several tokens"
    return None


def _wrong_with_trees(settings: Settings) -> str | None:
    """What is written up, and has fixes, which are off by default."""
    model = settings.get("model")
    if branches(settings) == 1:
        return None
    if "fa3" in verifiers(settings) and model == "windows-sinks":
        return "fa3 counts sinks twice where it verifies trees (docs/upstream/sglang-fa3-tree-sinks.md)"
    if "fa3" in verifiers(settings) and model == "mla" and settings.get("page-size", 1) > 1:
        return "fa3 takes slots for pages where it verifies trees (docs/upstream/sglang-fa3-mla-tree-pages.md)"
    if "triton" in verifiers(settings) and model in ("windows", "windows-sinks"):
        return "Triton begins windows too late where it verifies trees (docs/upstream/sglang-triton-tree-window.md)"
    return None


def _known(release: str, settings: Settings, wrong: str, kinds: Sequence[str], error: float) -> Known | None:
    """Of what has fixes, which are off by default; of trees, verifications alone."""
    if settings.get("quantization-param-path") and "torch_native" not in backends(settings):
        what = "a file of scales leaves less than backends read (docs/upstream/sglang-kv-scales-file.md)"
        return Known(what, {"quantization-param-path": None})
    if settings.get("model") == "hybrid" and wrong.startswith("RuntimeError: Index put requires the source and destination"):
        what = "states of convolutions in another dtype than the model's (docs/upstream/sglang-mamba-float16-conv.md)"
        return Known(what, {"mamba-conv-dtype": "model"})
    if settings.get("max-total-tokens") == 320 and wrong.startswith("RuntimeError: Prefill out of memory"):
        return Known("a chunk of a prompt that is scheduled though the pool has no slots left", {"max-total-tokens": 2048})
    if settings.get("model") == "mla" and wrong.startswith("AssertionError: EAGLE draft kv_indices row"):
        what = "lists of drafts near the limit of the context (docs/upstream/sglang-draft-kv-context-limit-twins.md)"
        return Known(what, {"speculative-algorithm": None})
    mixed = settings["enable-mixed-chunk"] and not settings["disable-radix-cache"] and Version(release) < Version("0.5.23")
    unwritten = wrong == f"layer {models.STATES_LAYER}" and "cached" in kinds and error == math.inf
    if settings["model"] == "hybrid" and mixed and unwritten:
        what = "chunks beside decodes, of which the radix cache gets states that nobody wrote (mended in 0.5.23)"
        return Known(what, {"enable-mixed-chunk": False})
    if ended := _ended(Version(release), settings, wrong):
        return ended
    trees = None if wrong.startswith("draft") else _wrong_with_trees(settings)
    return Known(trees, {"speculative-eagle-topk": 1}) if trees else None


#: Of arguments and shapes of `_ended`
_NONE, _LATENTS = "TypeError: unsupported operand type(s) for {}: 'Tensor' and 'NoneType'", "einsum(): subscript d has size 576"
_UNEVEN = re.compile(r"RuntimeError: shape '\[\d+, -1, \d+, (192|576)\]' is invalid for input of size")
_ROTATED = "TypeError: TritonAttnBackend.forward_extend() got an unexpected keyword argument 'q_rope'"


def _ended(number: Version, settings: Settings, wrong: str) -> Known | None:
    """Of an error with this text, the bug of the engine that raises it."""
    own, prefill = settings["attention-backend"], settings["prefill-attention-backend"] or settings["attention-backend"]
    verified = settings["model"] == "windows" and speculates(settings) and "flashinfer" in verifiers(settings)
    if verified and number < Version("0.5.14") and wrong == _NONE.format("-"):
        return Known("windows of FlashInfer, for which no verification is planned (mended in 0.5.14)", {"model": "mha"})
    if settings["model"] != "mla":
        return None
    mixed = settings["enable-mixed-chunk"] and not speculates(settings) and number < Version("0.5.19")
    if own == prefill == "flashmla" and mixed and (wrong == _NONE.format("+") or _UNEVEN.match(wrong)):
        what = "chunks beside decodes, which FlashMLA takes for a verification (mended in 0.5.19)"
        return Known(what, {"enable-mixed-chunk": False})
    other_way = wrong == _ROTATED or wrong.startswith(f"RuntimeError: {_LATENTS}")
    alone = settings["speculative-attention-mode"] == "decode" or settings["speculative-draft-attention-backend"]
    if speculates(settings) and own != prefill and alone and number < Version("0.5.18") and other_way:
        what = "a drafter's backend, called in the way of the target's other one (mended in 0.5.18)"
        return Known(what, {"speculative-attention-mode": "prefill", "speculative-draft-attention-backend": None})
    return None


def _impossible_with_states(settings: Settings, used: set[str]) -> str | None:
    model = settings.get("model")
    if model not in (None, "hybrid") and any(settings.get(name, AXES[name][0]) != AXES[name][0] for name in _OF_STATES):
        return "flags of recurrent states alone"
    if model not in (None, "hybrid") and settings.get("mamba-conv-dtype") == "default":
        return "a variable of recurrent states alone"
    if model != "hybrid":
        return None
    if speculates(settings):
        return "a drafter of a model with recurrent states is not built"
    if used & {"torch_native", "trtllm_mha"}:
        return "recurrent states are tried beside fa3, FlashInfer and Triton"
    strategy, page = settings.get("mamba-radix-cache-strategy", "auto"), settings.get("page-size", 1)
    if strategy == "no_buffer" and (page > 1 or settings.get("disable-overlap-schedule") is False):
        return "the engine refuses no_buffer with pages of several tokens, and with overlap scheduling"
    if page > settings.get("mamba-track-interval", page) and not settings.get("disable-radix-cache", True):
        return "the engine refuses states that are kept within a page"
    if strategy == "extra_buffer_lazy" and settings.get("disable-overlap-schedule", False):
        return "the engine refuses extra_buffer_lazy without overlap scheduling"
    return None


def _impossible_with_pages(settings: Settings, used: set[str]) -> str | None:
    """Some backends have the engine take pages of 64 tokens instead of smaller ones."""
    page, chunk = settings.get("page-size", 16), settings.get("chunked-prefill-size", -1)
    larger = used & _LATENT_BACKENDS or ("trtllm_mha" in used and page < 16)
    if 0 < chunk < max(page, 64 if larger else 1):
        return "the engine schedules whole pages of a prompt: with chunks shorter than one it waits for ever, and refuses none"
    if page == 128 and settings.get("max-total-tokens") == 320:
        return "of a pool of two pages the engine gives no request more than its first token"
    if page == 128 and "trtllm_mha" in used and settings.get("model") == "mha":
        return "the engine refuses pages of 128 tokens on trtllm_mha where no heads share keys"
    return None


def _impossible_with_more(settings: Settings) -> str | None:
    """Adapters and images."""
    model = settings.get("model")
    if settings.get("adapters") and model == "mla":
        return "adapters are made for projections to queries, keys and values of heads"
    if settings.get("adapters") and settings.get("speculative-adaptive") and settings.get("speculative-algorithm"):
        return "the engine refuses adapters where the number of drafts changes"
    if settings.get("images") and model not in (None, "mha", "gqa"):
        return "the model that takes images is a Llama"
    if settings.get("images") and settings.get("speculative-algorithm"):
        return "the class of EAGLE's drafter of a Llama embeds no image: it looks hashes up in its table"
    return None


def _not_paged(settings: Settings) -> bool:
    given = [settings[name] for name in ("attention-backend", "prefill-attention-backend") if name in settings]
    return settings.get("model") == "mla" or (len(given) == 2 and "flashinfer" not in given)


def _refused(release: str, settings: Settings) -> str | None:
    if settings.get("adapters") and settings.get("speculative-algorithm") and Version(release) < Version("0.5.19"):
        return "the engine refuses adapters beside a drafter"
    if settings.get("speculative-adaptive") and settings.get("speculative-algorithm") and Version(release) < Version("0.5.14"):
        return "the engine refuses steps without drafts"
    if settings.get("model") != "hybrid":
        return None
    own, prefill = settings.get("attention-backend"), settings.get("prefill-attention-backend")
    if own == "triton" and Version(release) < Version("0.5.19"):
        return "the engine refuses Triton's attention in this model"
    if own and prefill not in (None, own) and Version(release) < Version("0.5.16"):
        return "the layers of Mamba2 refuse to run beside two backends of attention"
    return None


def verifiers(settings: Settings) -> set[str]:
    """Backends that may verify drafts."""
    own, prefill = settings.get("attention-backend"), settings.get("prefill-attention-backend")
    mode = settings.get("speculative-attention-mode")
    return {*([own] if mode != "prefill" else []), *([prefill or own] if mode != "decode" else [])} - {None}


def _limit(settings: Settings) -> int:
    """Near the limit of the context, lists of slots of Triton's drafter go past their buffer; with trees that ends the stock
    process, or does not (docs/upstream/sglang-draft-kv-context-limit-twins.md). Its fix is off by default."""
    drafter = settings["speculative-draft-attention-backend"] or settings["attention-backend"]
    return models.CONTEXT - (8 if branches(settings) > 1 and drafter == "triton" else 0)


def _impossible(settings: Settings) -> str | None:
    model, used, dtype = settings.get("model"), backends(settings), settings.get("dtype")
    if reason := _impossible_with_scales(settings, used):
        return reason
    if reason := _impossible_on_latents(settings, used):
        return reason
    if reason := _impossible_with_states(settings, used):
        return reason
    if reason := _impossible_with_pages(settings, used) or _impossible_with_more(settings):
        return reason
    if settings.get("flashinfer-use-paged") and _not_paged(settings):
        return "a variable of FlashInfer's attention on heads of their own"
    if "torch_native" in used and speculates(settings):
        return "the engine refuses a drafter on torch_native"
    if "flashinfer" in used and model == "windows-sinks":
        return "the engine refuses sinks on FlashInfer"
    if "torch_native" in used and model in ("windows", "soft-cap", "windows-sinks"):
        return "the engine's documentation says that torch_native has no windows, and it has no soft cap; it refuses neither"
    if "fa3" in used and settings.get("kv-cache-dtype") == "fp8_e4m3" and dtype == "float16":
        return "FlashAttention 3 returns bfloat16 for an FP8 cache, which a float16 model's next layer does not take"
    if (settings.get("speculative-eagle-topk") or 1) > 1 and (reason := _impossible_with_trees(settings, used)):
        return reason
    if "trtllm_mha" in used and speculates(settings):
        return "near the limit of the context, drafts on trtllm_mha write and read past the rows of its page table; written up"
    if "trtllm_mha" in used and model == "soft-cap":
        return "TRT-LLM's kernels have no soft cap; the engine's documentation says so, and it refuses none"
    if model == "soft-cap" and speculates(settings):
        return "the class of Gemma 2 has no `get_embed_and_head`, which a drafter asks for"
    if model not in (None, "windows-sinks") and settings.get("enable-unified-memory"):
        return "unified memory is about a pool of window layers beside another"
    return None


SPACE = Space(
    axes=AXES,
    edges=_edges,
    limit=_limit,
    impossible=_impossible,
    refused=_refused,
    known=_known,
    interpreted=lambda settings: bool("triton" in backends(settings) or settings["model"] == "hybrid" or settings["adapters"]),
)
PLAINEST = {axis: values[0] for axis, values in AXES.items()}
