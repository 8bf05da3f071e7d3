#!/usr/bin/env python3
"""Serves tiny models with a real vLLM on this machine's GPU, stock (ATTNFIX=0) and with attnfix merely installed.

    python -m scripts.serve.gpu_e2e_vllm --case order
        vllm.mla-context-order: a long prompt alone and in company
    python -m scripts.serve.gpu_e2e_vllm --case empty
        vllm.empty-context-chunks and vllm.lse-log-base: requests of unequal
        context in one step, against the FlashAttention prefill backend
    python -m scripts.serve.gpu_e2e_vllm --case padded
        vllm.padded-v-merge: the same requests with FlashAttention 2, against 3
    python -m scripts.serve.gpu_e2e_vllm --case dcp
        vllm.dcp-empty-shard: short prompts on two GPUs that share their KV
    python -m scripts.serve.gpu_e2e_vllm --case dcp-graphs
        the same, decoded in CUDA graphs
    python -m scripts.serve.gpu_e2e_vllm --case dcp-pages
        vllm.dcp-page-counts, vllm.lse-log-base: a Llama on such GPUs, FlashInfer
    python -m scripts.serve.gpu_e2e_vllm --case dcp-spec
        vllm.dcp-spec-graph: such GPUs with n-gram speculation and CUDA graphs
    python -m scripts.serve.gpu_e2e_vllm --case dcp-split
        vllm.dcp-fa2-split: the rest of a prompt beside a new one, FlashAttention 2
    python -m scripts.serve.gpu_e2e_vllm --case quantized
        vllm.quantized-mla-context: an AWQ model and a cached prefix
    python -m scripts.serve.gpu_e2e_vllm --case prefix-cache
        vllm.mamba-prefix-cache: conversations whose earlier turns are cached
    python -m scripts.serve.gpu_e2e_vllm --case prefix-cache-mamba2
        the same with a NemotronH
    python -m scripts.serve.gpu_e2e_vllm --case mamba-checkpoint
        vllm.mamba-stale-checkpoint: a NemotronH with one draft, in chunks
    python -m scripts.serve.gpu_e2e_vllm --case uniform-decode
        vllm.gdn-uniform-decode: prompts as short as a verification
    python -m scripts.serve.gpu_e2e_vllm --case one-token
        vllm.padded-one-token-prompt: prompts of one token beside answers, a Qwen3-Next
    python -m scripts.serve.gpu_e2e_vllm --case one-token-mamba2
        the same with a NemotronH
    python -m scripts.serve.gpu_e2e_vllm --case q-scale
        vllm.flashinfer-q-scale: a Llama with scales of queries, FlashInfer
    python -m scripts.serve.gpu_e2e_vllm --case q-scale-mixed
        the same where prefills have FP8 queries, and decodes have not
    python -m scripts.serve.gpu_e2e_vllm --case metrics
        the engine's HTTP server: attnfix on its metrics page and in attnfix status

Needs one GPU of the Hopper generation (`dcp…`: two, or one as scripts/serve/one_gpu.py says), vLLM 0.20.0-0.26.0 (`order`:
0.24.0-0.26.0; `empty`, `padded`: 0.21.0-0.25.1; `dcp`, `dcp-graphs`: up to 0.24.0; `dcp-pages`: with FlashInfer; `dcp-spec`,
`prefix-cache…`, `uniform-decode`: up to 0.33.0; `dcp-split`: 0.26.0-0.33.0; `mamba-checkpoint`: 0.32.0, 0.33.0; `one-token…`,
`q-scale…`: 0.33.0, the latter with nvcc for FlashInfer) and attnfix, both installed or on PYTHONPATH, attnfix so that its .pth
file is processed. `dcp…` on vLLM 0.33.0: NCCL 2.29.7 or newer, which LD_PRELOAD and VLLM_NCCL_SO_PATH name where torch brings
an older one. No network: models are made here with random weights, prompts are token ids. One to three minutes a case. Each
case merges its figures into OUT/e2e-<gpu>-vllm-<release>.json; logs of the servers lie beside it. Exits 1 when a check fails.

`empty` is about a kernel that Blackwell alone has: what stands in for it is in scripts/serve/ragged_stand_in.py.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import (
    e2e,
    e2e_http,
    e2e_vllm,
    one_gpu,
    plugins,
    ragged_stand_in,
    tiny_deepseek,
    tiny_llama,
    vllm_hybrid,
    vllm_q_scale,
)
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.e2e_vllm import (
    FORMER,
    FORMER_PATCHED,
    GRAPHS,
    OFF,
    SHARED,
    V1_RUNNER,
    VARIABLES,
    activity_failures,
    table,
)
from scripts.serve.sides import Serving, Side

ORDER, EMPTY, BASE, QUANTIZED, PADDED, DCP, PAGES = (
    "vllm.mla-context-order", "vllm.empty-context-chunks", "vllm.lse-log-base", "vllm.quantized-mla-context",
    "vllm.padded-v-merge", "vllm.dcp-empty-shard", "vllm.dcp-page-counts",
)  # fmt: skip
DCP_SPEC, DCP_SPLIT = "vllm.dcp-spec-graph", "vllm.dcp-fa2-split"
#: Differences of two log-probabilities up to which they count as equal. `order` compares equal work; the others differ in how
#: bfloat16 is rounded: kernels merge where they attended at once
ROUNDING = {"order": 0.03, "empty": 0.05, "padded": 0.05, "quantized": 0.08, "dcp": 0.08}
#: From here on it is the fault: several times what rounding does
RED = 0.15
STEP = 2048  # max_num_batched_tokens of `order`
FRESH = 600  # tokens of a fresh prompt: the FlashAttention backend sends up to 512 new ones through its decode path
CONTEXTS = (28672, 20480, 12288, 8192, 4096, 1024, 256)  # tokens in the cache of each request of `empty` and `padded`


def tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(count)]


# order


def order_prompts(seed: int = 0) -> dict[str, dict[str, list]]:
    """scenario -> {"before": …, "alone": …, "company": …}, each a list of prompts (token ids) sent at once. The one that is
    looked at is the last of "alone"; it is in "company", too. `before` fills the prefix cache."""
    draw = random.Random(seed)
    long = tokens(draw, 4 * STEP + 1300)
    # Fills whole steps, so that all that was sent behind it starts together
    ahead, prefix = tokens(draw, 4 * STEP), tokens(draw, 6000)
    cached = prefix + tokens(draw, 1000)
    return {
        # The budget of the fifth step leaves room for it
        "chunked": {"before": [], "alone": [long], "company": [long, tokens(draw, FRESH)]},
        "cached": {"before": [prefix], "alone": [ahead, cached], "company": [ahead, tokens(draw, FRESH), cached]},
    }


def order(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    def work(server: Server) -> dict[str, Any]:
        found: dict[str, Any] = {"answers": {}, "compared": {}}
        for scenario, sent in order_prompts().items():
            seen = {}
            for way in ("alone", "company"):
                server.ask("forget")
                if sent["before"]:
                    server.ask("answer", prompts=sent["before"])
                answers = server.ask("answer", prompts=sent[way])["answers"]
                (seen[way],) = (answer for answer, prompt in zip(answers, sent[way]) if prompt is sent["alone"][-1])
            found["answers"][scenario], found["compared"][scenario] = seen, e2e.compare(seen["alone"], seen["company"])
        return found

    settings = {"max_model_len": 16384, "max_num_batched_tokens": STEP}
    sides = {STOCK: OFF, PATCHED: {}, "v1 runner": OFF | V1_RUNNER}
    found = serve({name: Side(own, settings) for name, own in sides.items()}, work)
    wrong = order_failures(found)
    for side in found.values():
        del side["answers"]
    return {"settings": SHARED | settings, "sides": found}, table(found), wrong


def order_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong, rounding = activity_failures(found, {PATCHED: {ORDER}}), ROUNDING["order"]
    for name, side in found.items():
        for scenario, seen in side["compared"].items():
            if name == STOCK and seen["difference"] <= RED:
                wrong.append(f"stock, {scenario}: no difference. Was a step shared, and is this Model Runner V2?")
            if name != STOCK and not seen["difference"] <= rounding:
                wrong.append(f"{name}, {scenario}: alone and in company differ by {seen['difference']:.3g}")
    for scenario, answers in found[PATCHED]["answers"].items():
        same = e2e.compare(found[STOCK]["answers"][scenario]["alone"], answers["alone"])
        if not same["difference"] <= rounding:
            wrong.append(f"patched, {scenario}: alone, it differs from stock by {same['difference']:.3g}")
    return wrong


# empty


def empty_sides() -> dict[str, tuple[dict[str, str], str]]:
    """name -> (environment, MLA prefill backend)."""
    ragged = "TRTLLM_RAGGED"
    return {
        "reference": (OFF, "FLASH_ATTN"),
        STOCK: (OFF, ragged),
        EMPTY: ({"ATTNFIX_VLLM_LSE_LOG_BASE": "0"}, ragged),  # alone
        BASE: ({"ATTNFIX_VLLM_EMPTY_CONTEXT_CHUNKS": "0"}, ragged),  # alone
        PATCHED: ({}, ragged),
    }


#: 64k tokens of workspace for seven requests: four chunks for the longest
UNEQUAL = {"max_model_len": 32768, "max_num_batched_tokens": 8192, "enforce_eager": True}


def unequal(serve: Serving, sides: dict[str, Side]) -> dict[str, Any]:
    """What each side says of requests of unequal context in one step, compared with the side `reference`."""
    draw = random.Random(1)
    prefixes = [tokens(draw, count) for count in CONTEXTS]
    asked = [prefix + tokens(draw, 520 + 10 * at) for at, prefix in enumerate([*prefixes, [], []])]

    def work(server: Server) -> dict[str, Any]:
        for prefix in prefixes:  # one at a time: a prefix in company would be wrong itself
            server.ask("answer", prompts=[prefix], new_tokens=1)
        answers = server.ask("answer", prompts=asked, together=True)["answers"]
        said = re.search(r"Using (\w+) MLA prefill backend", server.log.read_text(errors="replace"))
        return {"answers": answers, "cached": [answer["cached"] for answer in answers], "backend": said and said.group(1)}

    found = serve(sides, work)
    reference = found["reference"].pop("answers")
    for name, side in found.items():
        if name != "reference":
            side["each"] = [e2e.compare(a, b) for a, b in zip(reference, side.pop("answers"))]
            side["compared"] = {"all requests": e2e.worst(side["each"])}
    return found


def unequal_failures(found: dict[str, Any], red: set[str], rounding: float) -> list[str]:
    wrong = []
    for name, side in found.items():
        if side["cached"] != [*CONTEXTS, 0, 0]:
            wrong.append(f"{name}: tokens found in the cache were {side['cached']}")
        if name in red and side["compared"]["all requests"]["difference"] <= RED:
            wrong.append(f"{name}: no difference to the reference")
    difference = found[PATCHED]["compared"]["all requests"]["difference"]
    if not difference <= rounding:
        wrong.append(f"patched: differs from the reference by {difference:.3g}")
    return wrong


def empty(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    plugin = plugins.package(serve.out / "plugin", ragged_stand_in)
    sides = {}
    for name, (own, backend) in empty_sides().items():
        chosen = UNEQUAL | {"attention_config": {"mla_prefill_backend": backend}}
        sides[name] = Side(own | V1_RUNNER, chosen, None if backend == "FLASH_ATTN" else plugin)
    found = unequal(serve, sides)
    result = {"settings": SHARED | UNEQUAL, "contexts": CONTEXTS, "emulated": ragged_stand_in.EMULATED, "sides": found}
    return result, table(found), empty_failures(found)


def empty_failures(found: dict[str, Any]) -> list[str]:
    wrong = activity_failures(found, {EMPTY: {EMPTY}, BASE: {BASE}, PATCHED: {EMPTY, BASE}})
    for name, side in found.items():
        backend = empty_sides()[name][1]
        if side["backend"] != backend:
            wrong.append(f"{name}: served by {side['backend']}, not {backend}")
    return wrong + unequal_failures(found, {STOCK, EMPTY, BASE}, ROUNDING["empty"])


# padded


def padded(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    """Hopper's default is FlashAttention 3, whose values may be narrower than keys; with 2 they are padded."""
    settings, sides = UNEQUAL, {}
    for name, own, version in (("reference", OFF, 3), (STOCK, OFF, 2), (PATCHED, {}, 2)):
        # Decodes by Triton, so that the version changes prefill alone
        chosen = {"attention_config": {"backend": "TRITON_MLA", "flash_attn_version": version}}
        sides[name] = Side(own | V1_RUNNER, settings | chosen)
    found = unequal(serve, sides)
    return {"settings": SHARED | settings, "contexts": CONTEXTS, "sides": found}, table(found), padded_failures(found)


def padded_failures(found: dict[str, Any]) -> list[str]:
    return activity_failures(found, {PATCHED: {PADDED}}) + unequal_failures(found, {STOCK}, ROUNDING["padded"])


# dcp, dcp-pages

#: Of these, a request's first SHARE tokens lie on one rank, the next on the other
SHARE = 64
TWO_RANKS = {
    "tensor_parallel_size": 2, "max_model_len": 4096, "max_num_batched_tokens": 1024, "enforce_eager": True,
    "disable_custom_all_reduce": True,
}  # fmt: skip
SHARED_KV = {"decode_context_parallel_size": 2}
#: Tokens of the prompts. With all that is decoded, those of `dcp` stay on one rank, or lie on both
SHORT = {"on one rank": (3, 6, 11, 20, 33, 50), "on both ranks": (100, 200, 500)}
LONG = {"in one step": (40, 300, 600), "in chunks": (2200, 3000, 3900)}
#: Of prompts that are there together; a long one takes two steps. Model Runner V2 puts requests with fewer tokens first; the
#: former one puts a new request into the row of one that has ended, or behind all
BESIDE = {
    "behind a new one": (1500, 100), "behind a decode, too": (40, 1400, 90), "behind a new one in a free row": (20, 1400, 300),
    "in order": (1100, 300), "alone": (2500,), "all new": (100, 200, 300),
}  # fmt: skip
ENDS_FIRST = {"behind a new one in a free row": [1, e2e_vllm.NEW_TOKENS, e2e_vllm.NEW_TOKENS]}
COMPILED = "patched, compiled"
#: side -> scenarios in which the stock one leaves contexts out
LEFT_OUT = {STOCK: list(BESIDE)[:3], FORMER: list(BESIDE)[2:3]}


def on_two_ranks(
    serve: Serving, sides: dict[str, dict[str, str]], settings: dict[str, Any], shared: dict[str, Any], prompts: Any, at: int,
    may_fail: tuple[str, ...] = (), together: bool = False, new_tokens: Mapping[str, list[int]] = MappingProxyType({}),
    own: Mapping[str, dict[str, Any]] = MappingProxyType({}), beside: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """{"settings", "prompts", "gpus", "sides"}: what each side says with `shared`, compared in the new token `at` with the side
    `reference`, whose ranks share heads alone. sides: name -> environment. may_fail: sides that may not start. `together`: all
    prompts of a scenario are there before the engine's first step. new_tokens: of each prompt of a scenario. own: settings of a
    side. beside: side -> another; "same bits" says in which scenarios its answers are the other's."""
    draw = random.Random(3)
    asked = {scenario: [tokens(draw, count) for count in counts] for scenario, counts in prompts.items()}

    def work(server: Server) -> dict[str, Any]:
        answers = {}
        for scenario, prompts in asked.items():
            new = new_tokens.get(scenario, e2e_vllm.NEW_TOKENS)
            answers[scenario] = server.ask("answer", prompts=prompts, at=at, together=together, new_tokens=new)["answers"]
        said = re.search(r"vLLM is using nccl==([\d.]+)", server.log.read_text(errors="replace"))
        return {"answers": answers, "nccl": said and said.group(1)}

    plugin = None
    if e2e.gpus() < 2:
        plugin = plugins.package(serve.out / "plugin", one_gpu)
        settings = settings | {"distributed_executor_backend": "mp"}  # where it chooses by itself, vLLM counts the GPUs
    settings, both = TWO_RANKS | settings, TWO_RANKS | settings | SHARED_KV | shared
    served = {"reference": Side(OFF, settings, plugin)}
    served |= {
        name: Side(variables, both | own.get(name, {}), plugin, may_fail=name in may_fail) for name, variables in sides.items()
    }
    found = serve(served, work)
    reference = found["reference"].pop("answers")
    answers = {name: side.pop("answers", {}) for name, side in found.items()}
    for name, side in found.items():
        pairs = {scenario: list(zip(reference[scenario], each)) for scenario, each in answers[name].items()}
        side["compared"] = {scenario: e2e.worst([e2e.compare(a, b) for a, b in each]) for scenario, each in pairs.items()}
        if name in beside:
            side["same bits"] = {what: each == answers[beside[name]][what] for what, each in answers[name].items()}
    return {"settings": SHARED | both, "prompts": prompts, "gpus": e2e.gpus(), "sides": found}


def two_ranks_failures(found: dict[str, Any], red: set[tuple[str, str]]) -> list[str]:
    """red: (side, scenario) that are wrong; all others are right."""
    # vLLM goes on without a word, and a reduce-scatter then leaves what lies in memory
    wrong = [f"{name}: vLLM has not loaded NCCL" for name, side in found.items() if side.get("nccl", "") is None]
    for name, side in found.items():
        for scenario, seen in side["compared"].items():  # none, where it did not start
            if (name, scenario) in red and seen["difference"] <= RED:
                wrong.append(f"{name}, {scenario}: no difference to the reference")
            if (name, scenario) not in red and not seen["difference"] <= ROUNDING["dcp"]:
                wrong.append(f"{name}, {scenario}: differs from the reference by {seen['difference']:.3g}")
    return wrong


def dcp(serve: Serving, graphs: bool = False) -> tuple[dict[str, Any], list[str], list[str]]:
    """Prefill is as ever, so it is the second new token that is compared."""
    backend: dict[str, Any] = {"attention_config": {"backend": "TRITON_MLA"}, "block_size": SHARE}
    if graphs:  # which TWO_RANKS goes without
        backend |= {"enforce_eager": False, "compilation_config": GRAPHS}
    result = on_two_ranks(serve, {STOCK: OFF, PATCHED: {}}, backend, {"cp_kv_cache_interleave_size": SHARE}, SHORT, at=1)
    return result, table(result["sides"]), dcp_failures(result["sides"])


def dcp_failures(found: dict[str, Any]) -> list[str]:
    wrong = activity_failures(found, {PATCHED: {DCP}})
    for name, side in found.items():
        if not all(seen["equal_tokens"] for seen in side["compared"].values()):
            wrong.append(f"{name}: the first new token is another, so that the second cannot be compared")
    return wrong + two_ranks_failures(found, {(STOCK, "on one rank")})


def dcp_pages(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    """FlashInfer, whose prefill needs both fixes as soon as there is context."""
    sides = {STOCK: OFF, PAGES: {"ATTNFIX_VLLM_LSE_LOG_BASE": "0"}, PATCHED: {}}
    backend = {"attention_config": {"backend": "FLASHINFER"}, "enable_flashinfer_autotune": False}
    result = on_two_ranks(serve, sides, backend, {}, LONG, at=0)
    return result, table(result["sides"]), dcp_pages_failures(result["sides"])


def dcp_pages_failures(found: dict[str, Any]) -> list[str]:
    wrong = activity_failures(found, {PAGES: {PAGES}, PATCHED: {PAGES, BASE}})
    return wrong + two_ranks_failures(found, {*((STOCK, scenario) for scenario in LONG), (PAGES, "in chunks")})


def dcp_spec(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    """Graphs of verification, which TWO_RANKS goes without elsewhere."""
    graphs = {
        "enforce_eager": False, "attention_config": {"backend": "FLASHMLA"}, "block_size": SHARE,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    }  # fmt: skip
    sides = {STOCK: OFF, PATCHED: {BY_ID[DCP_SPEC].switch: "1"}}
    result = on_two_ranks(serve, sides, graphs, {}, LONG, at=1, may_fail=(STOCK,))
    lines = [*table(result["sides"]), *(f"{STOCK}: {result['sides'][STOCK].get('said')}",)]
    return result, lines, dcp_spec_failures(result["sides"])


def dcp_spec_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = activity_failures(found, {PATCHED: {DCP_SPEC}}) + two_ranks_failures(found, set())
    if "AssertionError" not in (found[STOCK].get("said") or ""):
        wrong.append(f"stock: no assertion of the builder; it {'did not start' if 'ended' in found[STOCK] else 'started'}")
    return wrong


def dcp_split(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    on = {BY_ID[DCP_SPLIT].switch: "1"}
    sides = {STOCK: OFF, PATCHED: on, FORMER: OFF | V1_RUNNER, FORMER_PATCHED: on | V1_RUNNER, COMPILED: on}
    backend = {"attention_config": {"backend": "FLASH_ATTN", "flash_attn_version": 2}}
    result = on_two_ranks(
        serve, sides, backend, {}, BESIDE, at=0, may_fail=(COMPILED,), together=True, new_tokens=ENDS_FIRST,
        own={COMPILED: {"enforce_eager": False}}, beside={PATCHED: STOCK, FORMER_PATCHED: FORMER},
    )  # fmt: skip
    lines = [f"{name}: stock's bits: {side['same bits']}" for name, side in result["sides"].items() if "same bits" in side]
    return result, [*table(result["sides"]), *lines], dcp_split_failures(result["sides"])


def dcp_split_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = activity_failures(found, {name: {DCP_SPLIT} for name in (PATCHED, FORMER_PATCHED, COMPILED)})
    wrong += two_ranks_failures(found, {(name, scenario) for name, left_out in LEFT_OUT.items() for scenario in left_out})
    for name, stock in ((PATCHED, STOCK), (FORMER_PATCHED, FORMER)):
        others = [what for what, same in found[name]["same bits"].items() if not same and what not in LEFT_OUT[stock]]
        wrong += [f"{name}, {what}: not the bits of {stock}" for what in others]
    return wrong


# quantized


def quantized(serve: Serving) -> tuple[dict[str, Any], list[str], list[str]]:
    draw = random.Random(2)
    prefix = tokens(draw, 4096)
    first, second = (prefix + tokens(draw, 700) for _ in range(2))

    def work(server: Server) -> dict[str, Any]:
        (uncached,) = server.ask("answer", prompts=[second])["answers"]
        server.ask("forget")
        server.ask("answer", prompts=[first])
        answered = server.ask("answer", may_fail=True, prompts=[second])
        found = {"uncached": uncached, "said": error_of(server.log) if "error" in answered else None}
        if "error" in answered:
            return found | {"ended": answered["error"]}
        (cached,) = answered["answers"]
        return found | {"cached": cached["cached"], "compared": {"cached": e2e.compare(uncached, cached)}}

    settings = {"max_model_len": 16384, "max_num_batched_tokens": 8192, "enforce_eager": True}
    found = serve({STOCK: Side(OFF, settings), PATCHED: Side({}, settings)}, work)
    same = e2e.compare(*(found[side].pop("uncached") for side in (STOCK, PATCHED)))
    lines = [*table(found), f"stock: {found[STOCK].get('said') or found[STOCK].get('ended', 'answered')}"]
    result = {"settings": SHARED | settings, "quantization": tiny_deepseek.AWQ, "sides": found, "uncached": same}
    return result, lines, quantized_failures(found, same)


def quantized_failures(found: dict[str, Any], same: dict[str, Any]) -> list[str]:
    wrong = activity_failures(found, {PATCHED: {QUANTIZED}})
    if "ended" not in found[STOCK]:
        wrong.append("stock: the second request was answered")
    if "compared" not in found[PATCHED]:
        return [*wrong, f"patched: the second request was not answered: {found[PATCHED]['ended']}; {found[PATCHED]['said']}"]
    difference = found[PATCHED]["compared"]["cached"]["difference"]
    if not found[PATCHED]["cached"]:
        wrong.append("patched: the second request found nothing in the cache")
    if not difference <= ROUNDING["quantized"]:
        wrong.append(f"patched: cached and uncached differ by {difference:.3g}")
    if not same["difference"] <= ROUNDING["order"]:
        wrong.append(f"patched: uncached, it differs from stock by {same['difference']:.3g}")
    return wrong


def error_of(log: Path) -> str | None:
    """The exception that ended the engine core, from its log."""
    said = log.read_text(errors="replace").rpartition("EngineCore encountered a fatal error")[2]
    found = [error for error in e2e.errors(said) if not error.startswith("EngineDead")]
    return found[0] if found else None


def metrics(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    settings = SHARED | {"max_model_len": 16384, "max_num_batched_tokens": STEP, "enforce_eager": True}
    launch = ["-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--skip-tokenizer-init", "--host", "127.0.0.1"]
    launch += ["--port", "{port}", "--served-model-name", "tiny", *e2e_http.flags(settings)]
    shared = {"model": "tiny", "max_tokens": 4, "temperature": 0, "ignore_eos": True}

    def bodies(at: int) -> list[dict[str, Any]]:  # none is in the cache yet
        return [shared | {"prompt": prompt} for sent in order_prompts(at).values() for prompt in sent["company"]]

    return e2e_http.metrics(launch, model, out, VARIABLES, ORDER, "/v1/completions", bodies)


#: Cases that are a module's: they make their models themselves
_OF_MODULES = {
    "prefix-cache": vllm_hybrid.prefix_cache, "prefix-cache-mamba2": vllm_hybrid.mamba2_prefix_cache,
    "mamba-checkpoint": vllm_hybrid.mamba_checkpoint, "uniform-decode": vllm_hybrid.uniform_decode,
    "one-token": vllm_hybrid.one_token, "one-token-mamba2": vllm_hybrid.mamba2_one_token,
    "q-scale": vllm_q_scale.kept, "q-scale-mixed": vllm_q_scale.mixed,
}  # fmt: skip


def main() -> int:
    two_ranks = "dcp", "dcp-graphs", "dcp-pages", "dcp-spec", "dcp-split"
    cases = "order", "empty", "padded", *two_ranks, "quantized", *_OF_MODULES, "metrics"
    options = e2e.parser(__doc__, cases).parse_args()
    e2e.require_attnfix()
    out = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        model = Path(scratch, "model")
        if options.case == "metrics":
            result, lines, wrong = metrics(tiny_deepseek.make(model), out)
            about = e2e.machine("vllm")
        elif options.case in _OF_MODULES:
            result, lines, wrong = _OF_MODULES[options.case](model, out, options.one_by_one)
            about = e2e.machine_of(result["sides"])
        else:
            if options.case in ("dcp-pages", "dcp-split"):  # ranks share the KV of one head
                tiny_llama.make(model, kv_heads=1)
            else:
                tiny_deepseek.make(model, quantize=options.case == "quantized")
            case = {
                "order": order, "empty": empty, "padded": padded, "dcp": dcp, "dcp-graphs": partial(dcp, graphs=True),
                "dcp-pages": dcp_pages, "dcp-spec": dcp_spec, "dcp-split": dcp_split, "quantized": quantized,
            }[options.case]  # fmt: skip
            result, lines, wrong = case(e2e_vllm.serving(model, out, options.one_by_one))
            about = e2e.machine_of(result["sides"])
    return e2e.finish(options, about, result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
