"""The cost of attnfix, in turns with stock servers (turns.py): where no fix corrects, and where one does in nearly every step.

Needs one GPU of the Hopper generation with 60 GB (`vllm.dcp…`: two). One to four minutes a row for 120 pairs of figures, which
$ATTNFIX_GPU_PAIRS changes; no round begins that would end later than $ATTNFIX_GPU_SECONDS after the first.

No harm: a part's requests are all there before its first step, so every server has to give the same tokens in every round; the
fixes that stand are those of the ledgers, and nothing is corrected. Firing: stock is wrong there, so tokens are not compared; a
row counts if `attnfix status` tells more corrections of that fix behind each round, in each patched server. Other fixes that
the requests need are off. Tokens/s count the tokens of prompts that are not cached, and new ones.
"""

from __future__ import annotations

import functools
import math
import os
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from attnfix.patches.catalogue import BY_ID
from scripts.evidence.summaries import each_round
from tests.gpu.serving import cases, models, processes, test_releases, test_sglang, test_vllm, turns
from tests.gpu.serving.cases import GRAPHS, PATCHED, V1_RUNNER, record
from tests.gpu.serving.conversations import tokens
from tests.gpu.serving.turns import Length, Plan

PARTS, NEW_TOKENS = 10, 32
LENGTH = Length(math.ceil(int(os.environ.get("ATTNFIX_GPU_PAIRS", 120)) / (2 * PARTS)), PARTS,
                float(os.environ.get("ATTNFIX_GPU_SECONDS", math.inf)))  # fmt: skip
#: Kernels that are tuned by trying round otherwise when another one wins: all servers take what the first one has found
TUNED = {"TRITON_CACHE_AUTOTUNING": "1"}
#: A source of chance and the prefixes that are in the cache -> {"prompts", "singles", "new_tokens"} of a part. A single one may
#: be several prompts that share a step
Part = Callable[[random.Random, list[list[int]]], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """release: one that has the bug and runs on a Hopper. workload: the requests, in words. build: the model's options.

    prefixes: lengths of what is put into the cache before the first round, and stays there. without: fixes that are off. tuned:
    one server starts first. once: the fix corrects when the server starts, and never again."""

    fix: str
    release: str
    workload: str
    family: str
    settings: Mapping[str, Any]
    part: Part
    build: Mapping[str, Any] = field(default_factory=dict)
    prefixes: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    tuned: bool = False
    once: bool = False
    gpus: int = 1

    def __str__(self) -> str:
        return self.fix

    @property
    def engine(self) -> str:
        return BY_ID[self.fix].engine

    @property
    def plan(self) -> Plan:
        patched = {BY_ID[self.fix].switch: "1"} | cases.without(*self.without)
        variables, waves = (TUNED, turns.ONE_FIRST) if self.tuned else ({}, turns.AT_ONCE)
        return Plan(self.engine, self.settings, variables | self.variables, patched, repeats=False, waves=waves)

    def traffic(self) -> turns.Traffic:
        """New prompts in each part, so that nothing but the prefixes is cached; the same for every server."""
        draw = random.Random(31)
        prefixes = [tokens(draw, count) for count in self.prefixes]

        def of(at: int, part: int) -> dict[str, Any]:
            sent = self.part(random.Random(f"{at} {part}"), prefixes)
            cached = (next((len(one) for one in prefixes if prompt[: len(one)] == one), 0) for prompt in sent["prompts"])
            before = prefixes if (at, part) == (-1, 0) else []
            return {**sent, "before": before, "keep": True, "computed": sum(map(len, sent["prompts"])) - sum(cached)}

        return of


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


def pictured(draw: random.Random, _prefixes: list[list[int]]) -> dict[str, Any]:
    """Text, an image of 256 tokens, text, an image of 576, text; and a few new tokens. Of single ones, one is text alone."""
    prompts = [test_sglang.shown(draw, 40, 16, 40, 24, 60) for _ in range(9)]
    return {"prompts": prompts[:8], "singles": [prompts[8], tokens(draw, 1000)], "new_tokens": 16}


def behind_fresh_ones(draw: random.Random, prefixes: list[list[int]]) -> dict[str, Any]:
    """Longer parts of prompts with context, and shorter fresh prompts, share every step."""
    pair = lambda at: [prefixes[at % len(prefixes)] + tokens(draw, 1300), tokens(draw, test_vllm.FRESH)]  # noqa: E731
    return {"prompts": [prompt for at in range(8) for prompt in pair(at)], "singles": [pair(0), pair(1)], "new_tokens": 1}


_SHORT, _MTP = test_vllm.SPECULATIVE, test_vllm.MTP
_GRAPHS = {"compilation_config": GRAPHS | {"cudagraph_capture_sizes": [_SHORT * count for count in (1, 2, 4, 8, 16)]}}
_RANKS = test_vllm.TWO_RANKS | test_vllm.SHARED_KV
_PAGES: dict[str, Any] = {
    "workload": "prompts in chunks where two ranks share the KV, FlashInfer, a Llama", "family": "llama", "gpus": 2,
    "settings": _RANKS | {"attention_config": {"backend": "FLASHINFER"}, "enable_flashinfer_autotune": False},
    "part": fresh((2200, 3000, 3900, 2600), 1, 2200), "build": {"kv_heads": 1},
}  # fmt: skip
_SWA, _CAP = test_sglang.SWA, test_sglang.CAP
_WINDOWS = test_sglang.WINDOWS | test_sglang.FLASHINFER | {"chunked_prefill_size": 16384, "max_prefill_tokens": 16384}
_MEDIUM = models.MEDIUM
ROWS = (
    Row(
        "vllm.gdn-uniform-decode", "0.33.0", "prompts as short as a verification, nothing else, a Qwen3-Next with MTP",
        "qwen3-next", _MTP | {"enable_prefix_caching": False} | _GRAPHS, fresh((_SHORT,) * 256, 1, _SHORT, singles=4),
        variables=V1_RUNNER, tuned=True,
    ),
    Row(
        "vllm.accepted-counts-race", "0.33.0", "short answers that end in each step, beside long ones, a Qwen3-Next with MTP",
        "qwen3-next", _MTP | {"mamba_cache_mode": "align"} | _GRAPHS,
        fresh((24,) * 96, [64 if at % 12 == 0 else 2 + at % 5 for at in range(96)], 24), variables=V1_RUNNER, tuned=True,
    ),
    Row(
        "vllm.padded-one-token-prompt", "0.33.0", "prompts of one token beside others that decode, a Qwen3-Next with MTP",
        "qwen3-next", _MTP | _GRAPHS, fresh((1,) * 128, [2 + at % 5 for at in range(128)], 1, singles=4), tuned=True,
    ),
    Row(
        "vllm.mla-context-order", "0.25.1", "prompts with a cached prefix behind shorter fresh ones, a DeepSeek-V2", "deepseek",
        {"max_model_len": 16384, "max_num_batched_tokens": test_vllm.STEP, "enforce_eager": True}, behind_fresh_ones,
        prefixes=(6000, 6000),
    ),
    Row(
        "vllm.padded-v-merge", "0.25.1", "eight contexts of 20,480 tokens in a step, FlashAttention 2, a DeepSeek-V2",
        "deepseek",
        test_vllm.UNEQUAL | {"attention_config": {"backend": "TRITON_MLA", "flash_attn_version": 2}}, behind(8, 600, group=4),
        prefixes=(20480,) * 4, variables=V1_RUNNER,
    ),
    Row(
        "vllm.mamba-prefix-cache", "0.25.1", "prompts that share a budget of 320 tokens with decodes, a Qwen3-Next with MTP",
        "qwen3-next", _MTP | {"max_num_batched_tokens": test_vllm.SHARED_BUDGET, "enforce_eager": True},
        fresh(tuple(90 + 97 * at % 700 for at in range(24)), 20, 700), tuned=True,
    ),
    Row(
        "vllm.dcp-empty-shard", "0.24.0", "short prompts that decode where two ranks share the KV, a DeepSeek-V2", "deepseek",
        _RANKS | test_vllm._TRITON | {"cp_kv_cache_interleave_size": test_vllm.SHARE}, fresh((3, 6, 11, 20) * 4, 32, 11),
        gpus=2,
    ),
    Row(
        test_vllm.POOLING, "0.25.1", "embeddings of prompts of four chunks, a Llama", "llama", test_vllm.POOLED,
        fresh((4 * test_vllm.CHUNK,) * 8, 1, 2 * test_vllm.CHUNK), once=True,
    ),
    Row(
        "vllm.mixed-precision-stale-bits", "0.23.0", "prompts and answers that get blocks, windows and an FP8 cache, a Gemma 2",
        "gemma",
        {
            "max_model_len": 8192, "max_num_batched_tokens": 8192, "kv_cache_dtype": "fp8",
            "kv_cache_dtype_skip_layers": ["sliding_window"], "enforce_eager": False, "compilation_config": GRAPHS,
        },
        fresh((700, 1500, 2500, 4000) * 2, 48, 2500), {"repeats": True},
    ),
    Row("vllm.dcp-page-counts", "0.24.0", without=("vllm.lse-log-base",), **_PAGES),
    Row("vllm.lse-log-base", "0.24.0", without=("vllm.dcp-page-counts",), **_PAGES),
    Row(
        "sglang.lse-log-base", "0.5.23", "prompts behind 8,192 cached tokens, merged in chunks, a DeepSeek-V2", "deepseek",
        test_sglang.LONG | {"max_total_tokens": 65536, "mem_fraction_static": 0.9}, behind(8, 512),
        prefixes=(test_sglang.PREFIX,),
        variables={"SGLANG_MAX_KV_CHUNK_CAPACITY": "16384"},  # four chunks, where the default has room for 128k tokens
    ),
    Row(
        _SWA, "0.5.23", "prefill of prompts longer than the window, a Gemma 2", "gemma", _WINDOWS, fresh((4096,) * 8, 1, 4096),
        {"repeats": True}, without=(_CAP,),
    ),
    Row(
        _CAP, "0.5.23", "prefill and decode with a soft cap, a Gemma 2", "gemma",
        _WINDOWS | {"cuda_graph_max_bs": 8, "max_running_requests": 8}, fresh((4096,) * 8, 16, 4096), {"repeats": True},
        without=(_SWA,),
    ),
    Row(
        test_sglang.VERIFY, "0.5.23", "n-gram speculation behind prompts longer than the window, a Gemma 2", "gemma",
        test_sglang.FOUR | test_sglang.NGRAM, fresh(test_sglang.BEYOND, 32, 900), without=(_SWA, _CAP),
    ),
    Row(
        test_sglang.WINDOW_DECODE, "0.5.23", "decode behind prompts longer than the window, Triton, a Gemma 2", "gemma",
        test_sglang.FOUR | test_sglang.TRITON, fresh((600, 900, 1500, 2000), 64, 900),
    ),
    Row(
        test_sglang.LIMIT, "0.5.23", "wider page tables, requests with drafts far from the context length, a Granite",
        "granite",
        test_sglang.AT_THE_LIMIT | test_sglang.STANDALONE | {"mem_fraction_static": 0.9},
        fresh(test_sglang.AWAY, test_sglang.LIMIT_NEW, 200), {"size": _MEDIUM}, once=True,
    ),
    Row(
        test_sglang.FP8_PREFIX, "0.5.13", "prompts half of which is cached, a calibrated FP8 KV cache, a Llama", "llama",
        {"context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536} | test_sglang.FP8, behind(8, 2048),
        {"size": _MEDIUM, "calibrated": True}, prefixes=(2048,) * 4,
    ),
    Row(
        test_sglang.MROPE, "0.5.15", "prompts of two images each, a Qwen3.5", "qwen3.5",
        test_sglang.EYES | {"mem_fraction_static": 0.9}, pictured, tuned=True,
    ),
    Row(
        "sglang.mamba-track-boundary", "0.5.13", "prompts that come in when a state is kept, a NemotronH", "nemotron-h",
        test_sglang.STATES | {"max_total_tokens": 32768, "mem_fraction_static": 0.9, "max_mamba_cache_size": 100},
        fresh(test_sglang.TALK.first, list(test_sglang.TALK.answer), 200), tuned=True,
    ),
)  # fmt: skip
#: Fixes that are on by default in a release of RELEASES, and why no row is theirs
LEFT_OUT = {
    "vllm.empty-context-chunks": "Blackwell's kernel; what stands in for it on a Hopper says nothing about speed",
    "vllm.quantized-mla-context": "stock ends at the first request that needs it",
    "vllm.dcp-spec-graph": "stock does not start",
    "vllm.both-empty-merge-triton": "AMD and Intel: NVIDIA GPUs merge by another kernel",
    "vllm.dflash-aot-schedule": "needs a DFlash drafter; stock may end",
    "vllm.mamba-stale-checkpoint": "one or two steps of a long prompt, and no workload is known in which it is most of them",
    "vllm.flashinfer-q-scale": "not measured yet; its wrapper gets another number, and launches nothing more",
    "vllm.lora-prefix-key": "it launches nothing, and no server of these rows loads adapters",
    "vllm.dcp-fa2-split": "not measured yet; two launches a layer, in a step in which stock leaves out contexts",
    "vllm.mamba2-padded-tail": "one step of a request, and no workload is known in which it is most of them",
    "vllm.padded-tail-clip": "stock is wrong in the step; it launches nothing, and a step stays uniform",
    "vllm.mrope-gptj-eager": "not measured yet; some kernels of torch in place of one for each layer, in eager mode",
    "vllm.qwen2-vision-ranks": "needs several ranks; the next release gathers likewise",
    "vllm.swa-early-free": "not measured yet; it launches nothing, and a window keeps a block for one step more",
    "vllm.mamba-draft-count-assert": "stock ends at the first step that needs it",
    "vllm.partial-hit-assert": "stock ends at the first request",
    "vllm.stale-draft-placeholders": "stock ends at the first step that needs it",
    "vllm.session-stale-hash": "it launches nothing; two numbers are compared when a session is updated",
    "vllm.hybrid-stale-bits": "not measured in a server; a launch for each tensor of the pool in some steps",
    "vllm.yarn-attention-factor": "it writes a table anew while the model is loaded, and launches nothing while it serves",
    "vllm.packed-zeroing": "it plans once while a server starts; the same kernel then writes less",
    "vllm.gdn-token-order": "not measured yet; a sort of as many tokens, by another kernel up to 32 of them",
    "vllm.bailing-partial-rotary": "layers rotate less; a width is set while the model is loaded",
    "vllm.bailing-mla-rotary": "not measured yet; the same kernel rotates twice as many dimensions, as in 0.20.1",
    "vllm.exaone4-nope": "layers rotate less; an attribute is set while the model is loaded",
    "vllm.gdn-draft-conv-slots": "not measured yet; one small copy in a step with prefills",
    "vllm.gdn-draft-gates": "not measured yet; two small launches a layer, in steps in which stock is wrong",
    "vllm.draft-first-step-slots": "it launches nothing, and gives a prompt at most one block a step earlier",
    "vllm.gdn-fewer-drafts": "stock ends at the first step that needs it, or is wrong there",
    "vllm.mamba2-short-chunk": "not measured yet; a short prompt runs as a longer one does",
    "sglang.stale-prefill-fallback": "Blackwell",
    "sglang.hybrid-chunk-metadata": "stock ends at the first request that needs it",
    "sglang.fa3-scheduler-metadata": "stock ends of an illegal memory access",
    "sglang.mamba2-h-grid": "steps that fill the cache, and no workload is known in which it is most of them",
    "sglang.gdn-page-grid": "one small copy to the GPU more per prefill batch; it reads on the host what stock reads there",
    "sglang.gated-split-views": "not measured yet; at most two small copies a layer, which 0.5.11 makes in every step",
    "sglang.trtllm-mha-kv-scales": "Blackwell",
    "sglang.mamba2-prefill-graph": "stock ends at the first prompt",
    "sglang.fa3-dp-padding": "needs several GPUs; one small launch a layer of a padded prefill",
    "sglang.trtllm-mha-window-pages": "Blackwell",
    "sglang.trtllm-mha-draft-pool": "Blackwell",
    "sglang.encoder-prefix-cache": "no rate to compare with: stock computes a part of a text, wrongly",
    "sglang.yarn-settings": "it writes a table anew while the model is loaded, and launches nothing while it serves",
    "sglang.short-chunk-hang": "stock answers no prompt that needs it; two numbers are compared when a scheduler starts",
    "sglang.window-recovery": "four small launches where a prefix is cached again, and no launch in a step",
    "sglang.mamba-flush": "it runs when the cache is flushed, and no request is there",
    "sglang.preempted-twice-freed": "it launches nothing; a look at running requests where one of them may be preempted",
    "sglang.lora-captured-segments": "not measured yet; two small launches a step, and programs that end at once",
    "sglang.cohere2-rope": "not measured; a quarter of the layers rotates nothing, and the others keep their kernels",
    "sglang.mamba2-tensor-parallel": "stock answers garbage; one all-reduce for each layer, as on later releases",
    "sglang.dsa-index-rope": "an argument while a model is made; its kernel is the same one",
    "sglang.vision-padded-positions": "stock ends at the first request",
    "sglang.gemma3-text-bidirectional": "no launch more; an attribute on the host for each layer of a prefill",
    "sglang.future-slots": "it makes a table longer when a scheduler starts, and launches nothing while it serves",
    "sglang.layered-eagle-last-slot": "it makes a buffer longer when a server starts, and launches nothing while it serves",
    "sglang.drafter-idle-rank": "stock ends at the first step that needs it, and ranks with requests are left alone",
    "sglang.vision-idle-rank": "stock ends at the first step that needs it, and ranks with requests are left alone",
    "sglang.window-deferred-chunk": "it launches nothing; a look at each chunk of a prompt",
    "sglang.mrope-pairs": "not measured; the launches that 0.5.3 makes for each layer",
    "sglang.mrope-retraction": "stock ends at the first request that needs it",
    "sglang.mamba-snapshot-race": "not measured; between two chunks of a prompt, a wait that a step at a time has, too",
    "sglang.retraction-leak": "nothing in a step; a look at lengths where a request is taken back",
    "sglang.mamba-retraction": "stock ends at the first request that needs it",
    "sglang.mamba-abort-leak": "it launches nothing in a step; a state is freed where a prompt does not fit",
    "sglang.mamba-pool-full": "stock ends at the first prompt that needs it",
    "sglang.verify-ranks": "not measured; three broadcasts of some bytes for each verification, among several GPUs",
    "sglang.eagle-draft-positions": "one addition over a few numbers in a round; random weights accept no drafts",
    "sglang.mamba-freed-verify": "one number is filled where a request has ended; up to 0.5.15.post1 stock ends there",
    "sglang.dsa-short-prompt-keys": "not measured; one small copy a layer in a prefill of short prompts, as from 0.5.19 on",
    "sglang.plan-stream-verify": "a variable that none of these servers sets; one event a round, and the wait that 0.5.20 has",
    "sglang.unified-kv-last-page": "AMD; it makes a buffer longer when a server starts, and launches nothing while it serves",
    "sglang.falcon-h1-tensor-parallel": "needs several GPUs; one all-reduce less for each layer",
    "sglang.mamba-verify-clear": "it launches nothing, and leaves launches out",
}
RELEASES = {"vllm": ("0.24.0", "0.25.1", "0.33.0"), "sglang": ("0.5.13", "0.5.23")}

# Where nothing is to be corrected

_SEQUENCES = 32
_MORE: dict[str, dict[str, Any]] = {
    "vllm": {
        "max_num_seqs": _SEQUENCES, "enforce_eager": False,
        "compilation_config": GRAPHS | {"cudagraph_capture_sizes": [1, 2, 4, 8, 12, 16, 20]},
    },
    "sglang": {
        "max_total_tokens": 131072, "cuda_graph_max_bs": _SEQUENCES, "max_running_requests": _SEQUENCES, "sleep_on_idle": True,
    },
}  # fmt: skip
#: Kinds of model whose prompts are text: those that each release serves, and one that could be shown images
KINDS = test_releases.KINDS | {"sglang": test_releases.KINDS["sglang"] | {"images": ("qwen3.5", test_sglang.EYES)}}
HARMLESS = [
    (engine, kind, size) for engine in _MORE for kind in ("mla", "dense", "hybrid") for size in ("large", "tiny")
] + [("sglang", "images", "large")]  # fmt: skip


def harmless(engine: str, release: str, kind: str) -> Plan:
    settings, waves, variables = KINDS[engine][kind][1] | _MORE[engine], turns.AT_ONCE, dict[str, str]()
    if kind in ("hybrid", "images"):
        waves, variables = turns.ONE_FIRST, TUNED
    if engine == "vllm" and kind == "mla" and test_vllm.ORDER in cases.affected(engine, release):
        variables = variables | V1_RUNNER  # the other runner would have to be corrected
    return Plan(engine, settings, variables, waves=waves)


def traffic(_round: int, part: int) -> dict[str, Any]:
    """200 requests in all parts, as many of each kind in every part: short, longer than a step, behind cached prefixes."""
    return parts()[part]


@functools.cache
def parts() -> list[dict[str, Any]]:
    draw = random.Random(7)
    before = [tokens(draw, 2000) for _ in range(2)]
    short = [tokens(draw, draw.randrange(20, 400)) for _ in range(90)]
    long = [tokens(draw, draw.randrange(2500, 4000)) for _ in range(40)]
    cached = [draw.choice(before) + tokens(draw, draw.randrange(30, 900)) for _ in range(70)]
    singles, made = [tokens(draw, 600) for _ in range(2 * PARTS)], []
    for at in range(PARTS):
        prompts = [prompt for some in (short, long, cached) for prompt in some[at::PARTS]]
        draw.shuffle(prompts)
        made.append({"before": before, "prompts": prompts, "singles": singles[at::PARTS], "new_tokens": NEW_TOKENS})
    return made


def harm(engine: str, release: str, seen: dict[str, Any]) -> list[str]:
    """One sentence for each patched server that corrected, or is not patched as the ledgers say."""
    wrong = []
    for name, records in seen.get("processes", {}).items():
        if corrected := sorted(processes.corrections(records)):
            wrong.append(f"{name}: something was corrected, by {', '.join(corrected)}")
        if name.endswith(PATCHED):
            told = cases.unlike_ledgers(engine, release, records) if records else ["no process has a record"]
            wrong += [f"{name}: {sentence}" for sentence in told]
    return wrong


def idle(row: Row, seen: dict[str, Any]) -> list[str]:
    """One sentence for each patched server in which the fix did not correct."""
    counted = each_round(seen, row.fix) if "corrections" in seen else {}
    wrong = [] if counted or "ended" in seen else ["corrections were not counted"]
    for name, rounds in counted.items():
        if row.once and not seen["corrections"][name][-1].get(row.fix):
            wrong.append(f"{name}: {row.fix} corrected nothing")
        if not row.once and not all(count > 0 for count in rounds):
            wrong.append(f"{name}: {row.fix} corrected in each round {rounds}")
    return wrong


def kept(
    out: Path, name: str, about: Mapping[str, Any], seen: dict[str, Any], unfit: Collection[str], costs: list[str], node: str
) -> None:  # fmt: skip
    """Record a measurement; fail with the checks that do not hold."""
    machine, wrong = seen.pop("machine", None), [*unfit, *costs]
    if machine:
        record(out, machine, name, {**about, **turns.without_figures(seen, list(unfit)), "failures": wrong}, node)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("engine, kind, size", HARMLESS)
def test_no_harm(
    engine: str, kind: str, size: str, needs: Callable[..., None], out: Path, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    """large: it is the GPU that takes the time, as in service; tiny: the engine's Python, where figures are noisy."""
    needs(engine, (test_sglang.MROPE,) if kind == "images" else ())
    release, name = str(cases.release_of(engine)), f"no-harm {kind}{'-large' if size == 'large' else ''}"
    family, plan = KINDS[engine][kind][0], harmless(engine, release, kind)
    model = (models.large if size == "large" else models.make)(family)(out / "models" / name.replace(" ", "-"))
    seen = turns.measure(plan, name, model, traffic, LENGTH, out)
    unfit = turns.invalid(seen) + harm(engine, release, seen)
    costs = [] if unfit else turns.costly(seen, LENGTH, first_token=False)
    about = {"settings": plan.settings, "environment": plan.variables, "new_tokens": NEW_TOKENS}
    kept(out, name, about, seen, unfit, costs, request.node.nodeid)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_firing(row: Row, needs: Callable[..., None], out: Path, request: pytest.FixtureRequest) -> None:
    needs(row.engine, (row.fix,))
    if processes.gpus() < row.gpus:
        pytest.skip(f"needs {row.gpus} GPUs")
    build = {"size": models.FAMILIES[row.family].large} | dict(row.build)
    model = models.make(row.family, **build)(out / "models" / row.fix)
    seen = turns.measure(row.plan, row.fix, model, row.traffic(), LENGTH, out)
    unfit = turns.invalid(seen) + idle(row, seen)
    about = {
        "fix": row.fix, "workload": row.workload, "settings": row.settings, "environment": row.plan.variables,
        "patched": row.plan.patched, "prefixes": row.prefixes, "gpus": row.gpus,
    }  # fmt: skip
    kept(out, f"firing {row.fix}", about, seen, unfit, [] if unfit else turns.costly(seen, LENGTH), request.node.nodeid)


@pytest.mark.parametrize("side", ["stock", "patched"])
def test_a_start_compiles_all_kernels(side: str, needs: Callable[..., None], out: Path, tmp_path: Path) -> None:
    """With an empty cache of FlashInfer's kernels and with a full one: no kernel is compiled while a prompt waits."""
    needs("sglang", (_SWA, _CAP, test_sglang.VERIFY))
    model, draw = models.make("gemma", repeats=True)(out / "models/start"), random.Random(37)
    variables = {"FLASHINFER_WORKSPACE_BASE": str(tmp_path)} | (cases.OFF if side == "stock" else {})
    settings = cases.SHARED["sglang"] | test_sglang.FOUR | test_sglang.NGRAM
    for cache in ("empty", "full"):
        with processes.Server(processes.child("sglang"), f"start-{side}-{cache}", out / "logs", variables) as server:
            up, waited = server.start(model=str(model), **settings)["seconds"], []
            for _ in range(2):
                began, prompt = time.perf_counter(), tokens(draw, 3000)
                server.answer(prompt, new_tokens=32, at=None)
                waited.append(time.perf_counter() - began)
            corrected = processes.corrections(server.status())
        print(f"{side}, {cache} cache: up in {up} s, long prompts took {waited} s")
        if side == "patched":
            assert waited[0] <= waited[1] + 5, f"the first long prompt took {waited[0]:.1f} s, the second {waited[1]:.1f} s"
            assert {_SWA, _CAP, test_sglang.VERIFY} <= set(corrected)
