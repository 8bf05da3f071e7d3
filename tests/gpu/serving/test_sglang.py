"""Bugs of sglang, on a model with random weights: stock, and with attnfix merely installed.

Needs one GPU of the Hopper generation, and nvcc and ninja for FlashInfer. Two minutes a case, and three more for the first on a
machine, when FlashInfer compiles its kernels.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.gpu.serving import answers, models, processes
from tests.gpu.serving.cases import OFF, PATCHED, STOCK, Answers, Case, Found, Same, Side, on, without
from tests.gpu.serving.conversations import Conversation, Talk, alone, cold_and_cached, image, prompts, tokens
from tests.gpu.serving.processes import Server

LSE, HYBRID, FP8_PREFIX = "sglang.lse-log-base", "sglang.hybrid-chunk-metadata", "sglang.flashinfer-fp8-prefix"
SWA, CAP, VERIFY = "sglang.flashinfer-swa-prefill", "sglang.flashinfer-soft-cap", "sglang.eagle-swa-verify"
WINDOW_DECODE, LENGTHS, LIMIT = "sglang.triton-window-decode", "sglang.mla-draft-lengths", "sglang.fa3-context-limit"
MAMBA = (
    "sglang.mamba2-initial-state", "sglang.mamba2-h-grid", "sglang.mamba2-track-tail", "sglang.mamba-track-boundary",
)  # fmt: skip
PARALLEL, MROPE, ENCODER = "sglang.mamba2-prefill-graph", "sglang.qwen35-mrope", "sglang.encoder-prefix-cache"
GRID, SHORT, ADAPTERS = "sglang.gdn-page-grid", "sglang.short-chunk-hang", "sglang.lora-captured-segments"
TRITON, FA3, FLASHINFER = ({"attention_backend": name} for name in ("triton", "fa3", "flashinfer"))

# A prefix of many chunks

PREFIX, CACHED_NEW = 8192, 64
#: By default one-shot attention covers batches up to 128k tokens. This brings the path that merges chunks within reach of a
#: small run, as trtllm_mla takes it on every prefix hit of 8192
CAPACITY = {"SGLANG_MAX_KV_CHUNK_CAPACITY": "2048"}
LONG = {"disable_cuda_graph": True, "chunked_prefill_size": -1, "max_prefill_tokens": 32768}


def cached_prefix(server: Server) -> Conversation:
    draw = random.Random(20)
    for _ in range(4):
        prefix, new = tokens(draw, PREFIX), tokens(draw, CACHED_NEW)
        server.forget()
        uncached = server.answer(prefix + new)
        server.forget()
        server.answer(prefix)
        answer = server.answer(prefix + new)
        server.expect(answer["cached"] >= PREFIX, f"{PREFIX} tokens were not cached")
        yield "cached", (uncached, answer)


_CHUNKS: dict[str, Any] = {
    "model": models.make("deepseek"), "ask": cached_prefix, "variables": CAPACITY, "red": {STOCK: ("cached",)},
    "red_total": min, "wrong": 0.1, "one_by_one": True,  # the first server compiles FlashInfer's kernels
}  # fmt: skip

# Windows of a Gemma 2

WINDOWS: dict[str, Any] = {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 4,
}  # fmt: skip
FOUR = WINDOWS | {"max_running_requests": 4, "chunked_prefill_size": 8192}
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}
WINDOW_ALONE, CAP_ALONE, PAGED = "window alone", "soft cap alone", "stock, paged"
USE_PAGED = {"SGLANG_FLASHINFER_USE_PAGED": "1"}
#: Prompts longer than the window of 512
BEYOND, NEW = (600, 900, 1500, 3000), 32


def in_float64(found: Found, model: Path, given: Answers) -> Answers:
    """What is right of each answer of a Gemma, as far as it is listed: of the first new token, or of all."""
    return {scenario: [_exact(model, one) for one in each] for scenario, each in given.items()}


def _exact(model: Path, answer: dict[str, Any]) -> dict[str, Any]:
    listed, each = answer["logprobs"], isinstance(answer["logprobs"], list)
    text = answer["prompt"] + (answer["tokens"][:-1] if each else [])
    rows = models.exact(model, [text], last=len(listed) if each else 1)[0]
    right = [{token: float(row[int(token)]) for token in one} for row, one in zip(rows, listed if each else [listed])]
    return {"logprobs": right if each else right[0]}


def exact_cache(found: Found, model: Path, given: Answers) -> Answers:
    """The answers of the same weights with a cache of 16 bits and nothing cached."""
    return dict.fromkeys(given, found[EXACT]["answers"]["cold"])


def without_drafts(seed: int) -> Callable[[Server], Conversation]:
    """Greedy tokens of prompts beyond the window. Log-probabilities are not asked for: a server with drafts gives none."""
    return alone(seed, {"tokens": BEYOND}, times=4, new_tokens=NEW, at=None)


# Drafts

DRAFTS, CONTEXT, LIMIT_NEW = 6, 512, 24
STANDALONE = {
    "speculative_algorithm": "STANDALONE", "speculative_num_steps": DRAFTS - 1, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": DRAFTS, "speculative_draft_model_path": "{model}",
}  # fmt: skip
#: Tokens of prompts: away from the context length, where stock must be right; and so near that all residues of a step of DRAFTS
#: tokens come to it
AWAY, NEAR = (30, 100, 200, 300), tuple(CONTEXT - 24 - n for n in range(DRAFTS))
AT_THE_LIMIT = {
    "sampling_backend": "pytorch", "mem_fraction_static": 0.3, "max_total_tokens": 16384, "context_length": CONTEXT,
    "cuda_graph_max_bs": 1, "max_running_requests": 1, "dtype": "float16",
} | FA3  # fmt: skip
#: They make reading behind a page table an illegal memory access on each machine
RED_ZONES = {"PYTHONPATH": str(processes.HERE / "red_zones")}
DRAFTING = STANDALONE | {
    "mem_fraction_static": 0.9, "max_total_tokens": 16384, "context_length": 2048, "cuda_graph_max_bs": 4,
    "max_running_requests": 4, "disable_radix_cache": True,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "flashinfer": {}, "flashinfer, no graphs": {"disable_cuda_graph": True},
    "flashmla": {"attention_backend": "flashmla", "page_size": 64},
}  # fmt: skip


def up_to_the_limit(server: Server) -> Conversation:
    for what, prompt in prompts(25, {"away": AWAY, "near": NEAR}):
        server.forget()
        server.answer([5] * 8, new_tokens=1, at=None)
        yield what, server.answer(prompt, new_tokens=min(LIMIT_NEW, CONTEXT - len(prompt) - 1), at=None)


def drafted(server: Server) -> Conversation:
    """Four requests in a batch. The fewer tokens a prompt has, the more the newest ones count."""
    draw = random.Random(36)
    for what, lengths in (("short", (6, 12, 24, 40)), ("long", (200, 300, 400, 500))):
        for _ in range(8):
            asked = [tokens(draw, count) for count in lengths]
            yield from ((what, (None, one)) for one in server.answers(asked, new_tokens=48, at=None))


# States of a NemotronH

#: A state is kept every so many tokens, which is the least: a chunk of the model's
INTERVAL = models.CHUNK
#: Of what runs together, all reach a kept state in the same decode step, when prompts that had to wait come in: some answers
#: end in each of the steps around it. The others end behind it and continue from it; the short ones, from a prompt's state
_LONG, _SHORT = INTERVAL + 12, tuple(range(INTERVAL - 33, INTERVAL - 23))
TALK = Talk(
    first=tuple(28 + INTERVAL * (at % 3) for at in range(16)) + tuple(140 + 83 * at % 600 for at in range(10)),
    answer=(_LONG,) * 6 + _SHORT + (8, 12, _LONG, 20, 9, _LONG, 17, 8, _LONG, 30), more=40, turns=3,
)  # fmt: skip
STATES = {
    "context_length": 8192, "max_total_tokens": 65536, "mem_fraction_static": 0.3, "max_mamba_cache_size": 400,
    "max_running_requests": 16, "chunked_prefill_size": 2048, "cuda_graph_max_bs": 16,
    "mamba_scheduler_strategy": "extra_buffer", "mamba_track_interval": INTERVAL,
}  # fmt: skip

PAGES = STATES | TRITON | {"page_size": 128}

# Images of a Qwen3.5

#: Tokens of text before an image, its side in tokens, and tokens of text behind it
SHOWN = ((40, 8, 24), (30, 16, 4), (8, 16, 100), (200, 24, 40))
EYES = {
    "mm_attention_backend": "triton_attn", "disable_piecewise_cuda_graph": False, "max_total_tokens": 65536,
    "max_mamba_cache_size": 128, "mem_fraction_static": 0.3, "max_running_requests": 16, "cuda_graph_max_bs": 16,
    "context_length": 8192,
} | TRITON  # fmt: skip


def shown(draw: random.Random, before: int, *images: int) -> list[int]:
    """Text, and images of these sides, each with text of as many tokens as `images` has behind it."""
    prompt = tokens(draw, before)
    for side, behind in zip(images[::2], images[1::2]):
        prompt += image(side) + tokens(draw, behind)
    return prompt


def images(server: Server) -> Conversation:
    draw = random.Random(35)
    for _ in range(3):
        asked = [("image", shown(draw, *one)) for one in SHOWN]
        asked += [("two images", shown(draw, 20, 8, 10, 12, 12)), ("text", tokens(draw, 60)), ("text", tokens(draw, 1000))]
        for what, prompt in asked:
            server.forget()
            yield what, server.answer(prompt) | {"prompt": prompt}


def in_transformers(found: Found, model: Path, given: Answers) -> Answers:
    """What is right of the first token of each answer, as far as it is listed."""
    rows = iter(models.in_float32(model, [one["prompt"] for each in given.values() for one in each]))
    return {
        what: [{"logprobs": {token: float(row[int(token)]) for token in one["logprobs"]}} for one, row in zip(each, rows)]
        for what, each in given.items()
    }


# Texts of a BERT

NO_CACHE, WHOLE = "no prefix cache, no chunks", {"disable_radix_cache": True, "chunked_prefill_size": -1}
EMBEDDING = {"is_embedding": True, "context_length": 2048, "mem_fraction_static": 0.2, "max_total_tokens": 65536} | TRITON


def shared_beginnings(server: Server) -> Conversation:
    """Two texts with a common beginning, and the second one again; and more texts at once than a batch holds."""
    draw = random.Random(42)
    for common, rest in ((10, 20), (100, 30), (700, 300), (1200, 5)) * 3:
        server.forget()
        beginning = tokens(draw, common)
        first, second = (beginning + tokens(draw, rest) for _ in range(2))
        for what, text in (("alone", first), ("shared", second), ("again", second)):
            yield what, server.answer(text, at=None)
    server.forget()
    yield from (("together", one) for one in server.answers([tokens(draw, 500) for _ in range(40)], at=None))


# Adapters of a Llama

#: Of requests that decode together, the adapters; 0 the model alone
TOGETHER = {
    "one adapter": (1,) * 4, "beside the model": (1, 0, 2, 1), "two adapters": (1, 2, 1, 2), "many requests": (1, 2, 0, 2) * 5,
}  # fmt: skip
ADAPTED = {
    "enable_lora": True, "lora_paths": ["one={model}/adapter-1", "two={model}/adapter-2"], "cuda_graph_max_bs": 24,
    "max_running_requests": 24, "max_total_tokens": 65536, "context_length": 8192, "mem_fraction_static": 0.3,
}  # fmt: skip


def adapted_together(server: Server) -> Conversation:
    """The first tokens and, from a decode step, the second ones, beside those that the same server gives each request alone."""
    draw, kinds = random.Random(51), 1 + len(ADAPTED["lora_paths"])
    for what, named in TOGETHER.items():
        for _ in range(3):
            # The first token says which adapter
            asked = [[one + kinds * draw.randrange(1, 1000), *tokens(draw, 40 + 7 * at)] for at, one in enumerate(named)]
            server.forget()
            found = server.answers(asked, new_tokens=3, at=-1)
            for one, prompt, answer in zip(named, asked, found):
                server.forget()
                yield what if one else "the model", (server.answer(prompt, new_tokens=3, at=-1), answer)


# Prompts of a deterministic server

CHUNK, LONG_CHUNK, PATIENCE_S = 512, "chunk of 8192", 60
DETERMINISTIC = TRITON | {
    "enable_deterministic_inference": True, "chunked_prefill_size": CHUNK, "max_total_tokens": 65536,
    "mem_fraction_static": 0.2, "cuda_graph_max_bs": 4,
}  # fmt: skip


def up_to_four_chunks(server: Server) -> Conversation:
    """Prompts that fit into a chunk, then those that do not; a server that answers none of these ends."""
    draw = random.Random(51)
    for what, lengths in (("within", (100, CHUNK)), ("beyond", (CHUNK + 1, 700, 3 * CHUNK, 2000))):
        for length in lengths:
            server.forget()
            yield what, server.answer(tokens(draw, length))
            server.live(PATIENCE_S)


GRAPHED, NO_GRAPH = STATES | TRITON | {"disable_piecewise_cuda_graph": False}, "no prefill graph"
FP8, EXACT = {"kv_cache_dtype": "fp8_e4m3"}, "16-bit cache"
_BY_LENGTH = {"within": (100, 400), "beyond": (700, 2000, 6000)}
CASES = (
    Case("lse", "sglang", (LSE,), settings=LONG, **_CHUNKS),
    # Stock ends, or answers with the plan of another batch
    Case(
        "hybrid", "sglang", (HYBRID,), settings=LONG | {"decode_attention_backend": "triton"},
        sides={STOCK: Side(OFF, may_end=True), PATCHED: Side(on(HYBRID))}, **_CHUNKS,
    ),
    Case(
        "encoder", "sglang", (ENCODER,), models.make("bert"), shared_beginnings, EMBEDDING,
        {NO_CACHE: Side(OFF, WHOLE), STOCK: Side(OFF), PATCHED: Side(on(ENCODER))},
        reference=NO_CACHE, measure=answers.embedding, red={STOCK: ("shared", "again", "together")}, rounding=0.02, wrong=0.2,
        same=(Same(PATCHED, STOCK, ("alone",)),),
    ),
    Case(
        "short-chunks", "sglang", (SHORT,), models.make("llama"), up_to_four_chunks, DETERMINISTIC,
        {
            LONG_CHUNK: Side(OFF, {"chunked_prefill_size": 8192}), STOCK: Side(OFF, ends="ended with -9"),
            PATCHED: Side(on(SHORT)),
        },
        reference=LONG_CHUNK, same=(Same(PATCHED, LONG_CHUNK, ("within",)),),
    ),
    # Against float64, and beside the Triton backend
    Case(
        "windows", "sglang", (SWA, CAP), models.make("gemma", repeats=True), cold_and_cached(23, _BY_LENGTH, times=5),
        WINDOWS | {"chunked_prefill_size": 2048} | FLASHINFER,
        {
            STOCK: Side(OFF), PAGED: Side(OFF | USE_PAGED), WINDOW_ALONE: Side(on(SWA) | without(CAP)),
            CAP_ALONE: Side(on(CAP) | without(SWA)), PATCHED: Side(on(SWA, CAP)), "triton": Side(OFF, TRITON),
        },
        reference=in_float64, measure=answers.distance, total=answers.rms, yardstick="triton", rounding=1.5, furthest=2.0,
        wrong=3, red={STOCK: ("cold, beyond", "cached, beyond")}, free=(STOCK, PAGED, WINDOW_ALONE, CAP_ALONE),
        same=(Same(WINDOW_ALONE, STOCK, ("cold, within",)), Same(PATCHED, CAP_ALONE, ("cold, within",))),
    ),
    # Against a cache of 16 bits, and beside paged-only mode, which reads the same FP8 cache with its scales
    Case(
        "fp8-prefix", "sglang", (FP8_PREFIX,), models.make("llama", calibrated=True),
        cold_and_cached(25, {"": (200, 1000, 4000)}, times=5),
        {"context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536},
        {
            STOCK: Side(OFF, FP8), PAGED: Side(OFF | USE_PAGED, FP8), PATCHED: Side(on(FP8_PREFIX), FP8),
            EXACT: Side(OFF, {"kv_cache_dtype": "bf16"}),
        },
        reference=exact_cache, measure=answers.distance, total=answers.rms, yardstick=PAGED, rounding=1.2, wrong=5,
        red={STOCK: ("cached",)}, free=(STOCK, EXACT), same=(Same(PATCHED, STOCK, ("cold",)),),
    ),
    Case(
        "mamba2", "sglang", MAMBA, models.make("nemotron-h"), TALK, STATES, red={STOCK: ("cached turns",)}, rounding=0.5,
        wrong=1.0, free=(STOCK,),
    ),
    Case(
        "page-grid", "sglang", (GRID,), models.make("qwen3-next", sparse=True), TALK, PAGES, red={STOCK: ("cached turns",)},
        rounding=0.5, wrong=1.0, free=(STOCK,),
    ),
    Case(
        "page-grid-35", "sglang", (GRID,), models.make("qwen3.5"), TALK, PAGES | {"mm_attention_backend": "triton_attn"},
        red={STOCK: ("cached turns",)}, rounding=0.5, wrong=1.0, free=(STOCK,),
    ),
    # Prompts in the prefill graph, and beside it: without one all is right. Stock ends at the first prompt
    Case(
        "parallel-layers", "sglang", (PARALLEL,), models.make("falcon-h1"),
        alone(49, {"in the graph": (40, 300, 1000), "in parts": (3000,)}, times=5), GRAPHED,
        {
            NO_GRAPH: Side(OFF, {"disable_piecewise_cuda_graph": True}),
            STOCK: Side(OFF, ends="illegal memory access"), PATCHED: Side(on(PARALLEL)),
        },
        reference=NO_GRAPH, rounding=0.15,
    ),
    Case(
        "parallel-turns", "sglang", (PARALLEL,), models.make("falcon-h1"), TALK, GRAPHED,
        {STOCK: Side(OFF, ends="illegal memory access"), PATCHED: Side(on(PARALLEL))}, rounding=0.5,
    ),
    # Against the same weights in transformers' float32. Text keeps its bits
    Case(
        "images", "sglang", (MROPE,), models.make("qwen3.5"), images, EYES, reference=in_transformers,
        measure=answers.distance, total=answers.rms, rounding=0.2, wrong=0.35,
        red={STOCK: ("image", "two images")}, same=(Same(PATCHED, STOCK, ("text",)),),
    ),
    # Against Triton's backend, which caps the scores and keeps to the window. Prefill is right on all sides. Greedy decoding
    # goes other ways once two tokens are about as probable: so far does FlashInfer without speculation agree with Triton
    Case(
        "verify", "sglang", (VERIFY,), models.make("gemma"), without_drafts(32), FOUR,
        {
            "triton": Side(OFF, TRITON), "without speculation": Side(without(VERIFY)), STOCK: Side(without(VERIFY), NGRAM),
            PATCHED: Side(on(VERIFY), NGRAM),
        },
        reference="triton", measure=answers.equal_tokens, total=answers.inverse_mean, yardstick="without speculation",
        red={STOCK: ("tokens",)}, wrong=2, rounding=1.25,
    ),
    # Requests of several adapters in one graph. Where they are left out, the second token is that of the model alone
    Case(
        "adapters", "sglang", (ADAPTERS,), models.adapted(models.make("llama"), 16, 8), adapted_together, ADAPTED | FA3,
        measure=answers.first_two, rounding=0.3, wrong=0.6,
        red={STOCK: ("beside the model", "two adapters", "many requests")}, free=(STOCK,),
    ),
    # The steps of an answer, against a float64 forward over what the server has generated before; fa3 has no such bug
    Case(
        "window-decode", "sglang", (WINDOW_DECODE,), models.make("gemma"),
        alone(33, {"within": (400,), "up to": (500,), "beyond": (900, 2000)}, times=5, new_tokens=25, at=-1), FOUR | TRITON,
        {
            STOCK: Side(OFF), PATCHED: Side(on(WINDOW_DECODE)),
            "patched, no graphs": Side(on(WINDOW_DECODE), {"disable_cuda_graph": True}), "fa3": Side(OFF, FA3),
        },
        reference=in_float64, measure=answers.decode_distance, total=answers.rms, yardstick="fa3", red={STOCK: ("beyond",)},
        wrong=1.3, rounding=1.3, free=(STOCK,), same=(Same(PATCHED, STOCK, ("within",)),),
    ),
    # The model drafts for itself, so nearly every draft is what the target then says. fa3 has no such bug
    Case(
        "draft-lengths", "sglang", (LENGTHS,), models.make("deepseek"), drafted, DRAFTING,
        {"fa3": Side(OFF, FA3)} | {
            f"{name}, {kind}": Side(environment, more)
            for kind, more in KINDS.items() for name, environment in ((STOCK, OFF), (PATCHED, on(LENGTHS)))
        },
        measure=answers.accepted, total=answers.inverse_mean, yardstick="fa3", rounding=1 / 0.97, wrong=1 / 0.9,
        red={f"{STOCK}, {kind}": ("short",) for kind in KINDS}, free=[f"{STOCK}, {kind}" for kind in KINDS],
    ),
    # float16 rounds a verification otherwise than a step of one token: half of the answers must be those without drafts
    Case(
        "context-wall", "sglang", (LIMIT,), models.make("granite"), up_to_the_limit, AT_THE_LIMIT,
        {
            "no drafts": Side(OFF), STOCK: Side(OFF, STANDALONE, ends="illegal memory access|page_table"),
            PATCHED: Side(on(LIMIT), STANDALONE),
        },
        RED_ZONES, reference="no drafts", measure=answers.other_tokens, total=fmean, rounding=0.5,
        same=(Same(PATCHED, STOCK, ("away",)),),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
