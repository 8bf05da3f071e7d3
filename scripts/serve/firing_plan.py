"""What scripts.serve.e2e_firing measures: for each fix a model, settings and requests with which it corrects in most steps.

Models and settings are those of the gpu_e2e cases that show the fix at work, in a size that takes the GPU as long as a model in
service would, where they are fast enough to be made so.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import (
    context_wall,
    e2e_vllm,
    gpu_e2e_sglang,
    gpu_e2e_vllm,
    sglang_fp8_prefix,
    sglang_mamba2,
    sglang_verify,
    sglang_window_decode,
    sglang_windows,
    tiny_deepseek,
    tiny_gemma,
    tiny_llama,
    tiny_nemotron,
    tiny_qwen,
    turns,
    vllm_hybrid,
)

#: All models have it
VOCABULARY = tiny_deepseek.VOCABULARY
#: (a source of chance, prefixes that are in the cache) -> {"prompts", "singles", "new_tokens"} of a part. A single one may be
#: several prompts that share a step
Part = Callable[[random.Random, list[list[int]]], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """release: the newest that has the bug and runs on a Hopper. workload: what corrects, in words.

    prefixes: lengths of what is put into the cache before the first round, and stays there. without: fixes that are off, since
    this workload needs them, too. once: the fix corrects when the server starts, and never again. needs: what a machine must
    have beside one GPU."""

    fix: str
    release: str
    workload: str
    make: Callable[[Path], Path]
    settings: dict[str, Any]
    part: Part
    prefixes: tuple[int, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    waves: turns.Waves = turns.AT_ONCE
    once: bool = False
    gpus: int = 1
    needs: str = ""

    @property
    def engine(self) -> str:
        return BY_ID[self.fix].engine

    @property
    def patched(self) -> dict[str, str]:
        """The environment of patched servers: default, with this fix on and `without` off."""
        return {BY_ID[self.fix].switch: "1"} | {BY_ID[fix].switch: "0" for fix in self.without}


def tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(2, VOCABULARY) for _ in range(count)]


def fresh(lengths: tuple[int, ...], new: int | list[int], single: int, singles: int = 2) -> Part:
    """Prompts of which nothing is cached."""

    def part(draw: random.Random, _prefixes: list[list[int]]) -> dict[str, Any]:
        prompts = [tokens(draw, count) for count in lengths]
        return {"prompts": prompts, "singles": [tokens(draw, single) for _ in range(singles)], "new_tokens": new}

    return part


def behind(count: int, more: int, group: int = 1) -> Part:
    """Prompts of `more` tokens behind cached prefixes, in turns, one new token each; a single one is `group` of them."""

    def part(draw: random.Random, prefixes: list[list[int]]) -> dict[str, Any]:
        prompts = [prefixes[at % len(prefixes)] + tokens(draw, more) for at in range(count)]
        groups = [[prefixes[at % len(prefixes)] + tokens(draw, more) for at in range(group)] for _ in range(2)]
        return {"prompts": prompts, "singles": groups if group > 1 else [one for (one,) in groups], "new_tokens": 1}

    return part


def behind_fresh_ones(draw: random.Random, prefixes: list[list[int]]) -> dict[str, Any]:
    """Longer parts of prompts with context, and shorter fresh prompts, share every step of STEP tokens."""
    pair = lambda at: [prefixes[at % len(prefixes)] + tokens(draw, 1300), tokens(draw, gpu_e2e_vllm.FRESH)]  # noqa: E731
    return {"prompts": [prompt for at in range(8) for prompt in pair(at)], "singles": [pair(0), pair(1)], "new_tokens": 1}


_GRAPHS = e2e_vllm.GRAPHS | {
    "cudagraph_capture_sizes": [vllm_hybrid.SHORT * count for count in (1, 2, 4, 8, 16)],
}  # fmt: skip
_MLA = functools.partial(tiny_deepseek.make, size=tiny_deepseek.LARGE)
_QWEN = functools.partial(tiny_qwen.make, size=tiny_qwen.LARGE)
_GEMMA = functools.partial(tiny_gemma.make, size=tiny_gemma.MEDIUM)
_GEMMA_ANSWERS = functools.partial(tiny_gemma.make, size=tiny_gemma.MEDIUM, repeats=False)
_SWA, _CAP, _VERIFY = "sglang.flashinfer-swa-prefill", "sglang.flashinfer-soft-cap", "sglang.eagle-swa-verify"
_WINDOWS = sglang_windows.SETTINGS | {
    "attention_backend": "flashinfer", "chunked_prefill_size": 16384, "max_prefill_tokens": 16384,
}  # fmt: skip
#: Kernels that are tuned by trying: all servers take what the first one has found
_TUNED: dict[str, Any] = {"waves": turns.ONE_FIRST, "variables": {"TRITON_CACHE_AUTOTUNING": "1"}}
_TUNED_V1 = _TUNED | {"variables": _TUNED["variables"] | e2e_vllm.V1_RUNNER}
_RANKS = gpu_e2e_vllm.TWO_RANKS | gpu_e2e_vllm.SHARED_KV

ROWS = (
    Row(
        "vllm.gdn-uniform-decode", "0.33.0", "prompts as short as a verification, nothing else, a Qwen3-Next with MTP", _QWEN,
        vllm_hybrid.SETTINGS | {"enable_prefix_caching": False, "compilation_config": _GRAPHS},
        fresh((vllm_hybrid.SHORT,) * 256, 1, vllm_hybrid.SHORT, singles=4), **_TUNED_V1,
    ),
    Row(
        "vllm.accepted-counts-race", "0.33.0", "short answers that end in each step, beside long ones, a Qwen3-Next with MTP",
        _QWEN, vllm_hybrid.SETTINGS | {"mamba_cache_mode": "align", "compilation_config": _GRAPHS},
        fresh((24,) * 96, [64 if at % 12 == 0 else 2 + at % 5 for at in range(96)], 24), **_TUNED_V1,
    ),
    Row(
        "vllm.padded-one-token-prompt", "0.33.0", "prompts of one token beside others that decode, a Qwen3-Next with MTP",
        _QWEN,
        vllm_hybrid.SETTINGS | {"compilation_config": _GRAPHS},
        fresh((1,) * 128, [2 + at % 5 for at in range(128)], 1, singles=4), **_TUNED,
    ),
    Row(
        "vllm.mla-context-order", "0.25.1", "prompts with a cached prefix behind shorter fresh ones, a DeepSeek-V2", _MLA,
        {"max_model_len": 16384, "max_num_batched_tokens": gpu_e2e_vllm.STEP, "enforce_eager": True}, behind_fresh_ones,
        prefixes=(6000, 6000),
    ),
    Row(
        "vllm.padded-v-merge", "0.25.1", "eight contexts of 20,480 tokens in a step, FlashAttention 2, a DeepSeek-V2", _MLA,
        gpu_e2e_vllm.UNEQUAL | {"attention_config": {"backend": "TRITON_MLA", "flash_attn_version": 2}},
        behind(8, 600, group=4), prefixes=(20480,) * 4, variables=e2e_vllm.V1_RUNNER, needs="FlashAttention 2 of vLLM",
    ),
    Row(
        "vllm.mamba-prefix-cache", "0.25.1", "prompts that share a budget of 320 tokens with decodes, a Qwen3-Next with MTP",
        _QWEN,
        vllm_hybrid.SETTINGS | {"max_num_batched_tokens": vllm_hybrid.SHARED_BUDGET, "enforce_eager": True},
        fresh(tuple(90 + 97 * at % 700 for at in range(24)), 20, 700), **_TUNED,
    ),
    Row(
        "vllm.dcp-empty-shard", "0.24.0", "short prompts that decode where two ranks share the KV, a DeepSeek-V2", _MLA,
        _RANKS | {
            "attention_config": {"backend": "TRITON_MLA"}, "block_size": gpu_e2e_vllm.SHARE,
            "cp_kv_cache_interleave_size": gpu_e2e_vllm.SHARE,
        },
        fresh((3, 6, 11, 20) * 4, 32, 11), gpus=2,
    ),
    Row(
        "vllm.dcp-page-counts", "0.24.0", "prompts in chunks where two ranks share the KV, FlashInfer, a Llama",
        functools.partial(tiny_llama.make, size=tiny_deepseek.LARGE, kv_heads=1),
        _RANKS | {"attention_config": {"backend": "FLASHINFER"}, "enable_flashinfer_autotune": False},
        fresh((2200, 3000, 3900, 2600), 1, 2200), without=("vllm.lse-log-base",), gpus=2,
    ),
    Row(
        "vllm.lse-log-base", "0.24.0", "prompts in chunks where two ranks share the KV, FlashInfer, a Llama",
        functools.partial(tiny_llama.make, size=tiny_deepseek.LARGE, kv_heads=1),
        _RANKS | {"attention_config": {"backend": "FLASHINFER"}, "enable_flashinfer_autotune": False},
        fresh((2200, 3000, 3900, 2600), 1, 2200), without=("vllm.dcp-page-counts",), gpus=2,
    ),
    Row(
        "sglang.lse-log-base", "0.5.23", "prompts behind 8,192 cached tokens, merged in chunks, a DeepSeek-V2", _MLA,
        gpu_e2e_sglang.LONG | {"max_total_tokens": 65536, "mem_fraction_static": 0.9}, behind(8, 512),
        prefixes=(gpu_e2e_sglang.PREFIX,),
        variables={"SGLANG_MAX_KV_CHUNK_CAPACITY": "16384"},  # four chunks, where the default has room for 128k tokens
    ),
    Row(
        _SWA, "0.5.23", "prefill of prompts longer than the window, a Gemma 2", _GEMMA, _WINDOWS, fresh((4096,) * 8, 1, 4096),
        without=(_CAP,),
    ),
    Row(
        _CAP, "0.5.23", "prefill and decode with a soft cap, a Gemma 2", _GEMMA,
        _WINDOWS | {"cuda_graph_max_bs": 8, "max_running_requests": 8}, fresh((4096,) * 8, 16, 4096), without=(_SWA,),
    ),
    Row(
        _VERIFY, "0.5.23", "n-gram speculation behind prompts longer than the window, a Gemma 2", _GEMMA_ANSWERS,
        sglang_verify.SETTINGS | sglang_verify.NGRAM, fresh(sglang_verify.LENGTHS, 32, 900), without=(_SWA, _CAP),
    ),
    Row(
        "sglang.triton-window-decode", "0.5.23", "decode behind prompts longer than the window, Triton, a Gemma 2",
        _GEMMA_ANSWERS, sglang_window_decode.SETTINGS, fresh((600, 900, 1500, 2000), 64, 900),
    ),
    Row(
        "sglang.fa3-context-limit", "0.5.23", "wider page tables, requests with drafts far from the context length, a Granite",
        functools.partial(tiny_llama.make, size=tiny_gemma.MEDIUM, granite=True),
        context_wall.SETTINGS | context_wall.SPECULATIVE
        | {"speculative_draft_model_path": turns.MODEL, "mem_fraction_static": 0.9},
        fresh(context_wall.AWAY, context_wall.NEW, 200), once=True, needs="FlashAttention 3 of sglang",
    ),
    Row(
        "sglang.flashinfer-fp8-prefix", "0.5.13", "prompts half of which is cached, a calibrated FP8 KV cache, a Llama",
        functools.partial(tiny_llama.make_calibrated, size=tiny_gemma.MEDIUM),
        sglang_fp8_prefix.SETTINGS | sglang_fp8_prefix.FP8,
        behind(8, 2048), prefixes=(2048,) * 4,
    ),
    Row(
        "sglang.mamba-track-boundary", "0.5.13", "prompts that come in when a state is kept, a NemotronH",
        functools.partial(tiny_nemotron.make, size=tiny_nemotron.LARGE),
        sglang_mamba2.SETTINGS | {"max_total_tokens": 32768, "mem_fraction_static": 0.9, "max_mamba_cache_size": 100},
        fresh(sglang_mamba2.FIRST, list(sglang_mamba2.ANSWER), 200), **_TUNED,
    ),
)  # fmt: skip
BY_FIX = {row.fix: row for row in ROWS}

#: Fixes that are on by default in a release of RELEASES, and why no row is theirs
LEFT_OUT = {
    "vllm.empty-context-chunks": "Blackwell's kernel; what stands in for it on a Hopper says nothing about speed",
    "vllm.quantized-mla-context": "stock ends at the first request that needs it",
    "vllm.dcp-spec-graph": "stock does not start",
    "vllm.both-empty-merge-triton": "AMD and Intel: NVIDIA GPUs merge by another kernel",
    "vllm.dflash-aot-schedule": "needs a DFlash drafter; stock may end",
    "vllm.mamba-stale-checkpoint": "one or two steps of a long prompt, and no workload is known in which it is most of them",
    "vllm.flashinfer-q-scale": "not measured yet; its wrapper gets another number, and launches nothing more",
    "vllm.dcp-fa2-split": "not measured yet; two launches a layer, in a step in which stock leaves out contexts",
    "vllm.mamba2-padded-tail": "one step of a request, and no workload is known in which it is most of them",
    "sglang.stale-prefill-fallback": "Blackwell",
    "sglang.hybrid-chunk-metadata": "stock ends at the first request that needs it",
    "sglang.fa3-scheduler-metadata": "stock ends of an illegal memory access",
    "sglang.mamba2-h-grid": "steps that fill the cache, and no workload is known in which it is most of them",
    "sglang.trtllm-mha-kv-scales": "Blackwell",
}
RELEASES = {"vllm": ("0.24.0", "0.25.1", "0.33.0"), "sglang": ("0.5.13", "0.5.23")}
