"""Bugs of vLLM, on a model with random weights: stock, and with attnfix merely installed.

Needs one GPU of the Hopper generation; `dcp…` two, or one as one_gpu.py says. `dcp…` on vLLM 0.33.0: NCCL 2.29.7 or newer,
which LD_PRELOAD and VLLM_NCCL_SO_PATH name where torch brings an older one. One to three minutes a case.

`empty` is about a kernel that Blackwell alone has: ragged_stand_in.py says what stands in for it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.gpu.serving import answers, models, processes, ragged_stand_in
from tests.gpu.serving.cases import GRAPHS, OFF, PATCHED, STOCK, V1_RUNNER, Case, Same, Side, on, without
from tests.gpu.serving.conversations import Conversation, Talk, prompts, tokens
from tests.gpu.serving.processes import Server

ORDER, EMPTY, BASE, QUANTIZED, PADDED = (
    "vllm.mla-context-order", "vllm.empty-context-chunks", "vllm.lse-log-base", "vllm.quantized-mla-context",
    "vllm.padded-v-merge",
)  # fmt: skip
DCP, PAGES, SPEC, SPLIT = "vllm.dcp-empty-shard", "vllm.dcp-page-counts", "vllm.dcp-spec-graph", "vllm.dcp-fa2-split"
CACHE, UNIFORM, CHECKPOINT = "vllm.mamba-prefix-cache", "vllm.gdn-uniform-decode", "vllm.mamba-stale-checkpoint"
POOLING = "vllm.pooling-chunk-race"
ONE_TOKEN, Q_SCALE = "vllm.padded-one-token-prompt", "vllm.flashinfer-q-scale"
REFERENCE, REPLAYED = "reference", "patched, graphs"
FORMER, FORMER_PATCHED = "stock, former runner", "patched, former runner"  # where the others have Model Runner V2
EAGER = {"enforce_eager": True}

# MLA: contexts of several requests in one step

STEP = 2048  # max_num_batched_tokens of `order`
FRESH = 600  # tokens of a fresh prompt: the FlashAttention backend sends up to 512 new ones through its decode path
CONTEXTS = (28672, 20480, 12288, 8192, 4096, 1024, 256)  # tokens in the cache of each request of `empty` and `padded`
#: 64k tokens of workspace for seven requests: four chunks for the longest
UNEQUAL = {"max_model_len": 32768, "max_num_batched_tokens": 8192} | EAGER


def order_prompts(seed: int = 0) -> dict[str, tuple[list, list, list]]:
    """{scenario: (before, alone, company)}, each a list of prompts that are sent at once. `before` fills the prefix cache; the
    last one of `alone` is looked at, and is in `company`, too."""
    draw = random.Random(seed)
    long = tokens(draw, 4 * STEP + 1300)
    # Fills whole steps, so that all that was sent behind it starts together
    ahead, prefix = tokens(draw, 4 * STEP), tokens(draw, 6000)
    cached = prefix + tokens(draw, 1000)
    return {
        # The budget of the fifth step leaves room for the fresh one
        "chunked": ([], [long], [long, tokens(draw, FRESH)]),
        "cached": ([prefix], [ahead, cached], [ahead, tokens(draw, FRESH), cached]),
    }


def alone_and_in_company(server: Server) -> Conversation:
    for scenario, (before, *ways) in order_prompts().items():
        seen = []
        for sent in ways:
            server.forget()
            if before:
                server.answers(before)
            seen.append(server.answers(sent)[sent.index(ways[0][-1])])
        yield scenario, tuple(seen)


def unequal(server: Server) -> Conversation:
    """Requests of unequal context in one step."""
    draw = random.Random(1)
    prefixes = [tokens(draw, count) for count in CONTEXTS]
    asked = [prefix + tokens(draw, 520 + 10 * at) for at, prefix in enumerate([*prefixes, [], []])]
    for prefix in prefixes:  # one at a time: a prefix in company would be wrong itself
        server.answer(prefix, new_tokens=1)
    found = server.answers(asked, together=True)
    cached = [one["cached"] for one in found]
    server.expect(cached == [*CONTEXTS, 0, 0], f"tokens found in the cache were {cached}")
    chosen = server.settings["attention_config"].get("mla_prefill_backend")
    said = re.search(r"Using (\w+) MLA prefill backend", server.said)
    server.expect(chosen in (None, said and said[1]), f"served by {said and said[1]}, not {chosen}")
    yield from (("all requests", one) for one in found)


def _prefill(backend: str) -> dict[str, Any]:
    return {"attention_config": {"mla_prefill_backend": backend}}


def _version(version: int) -> dict[str, Any]:
    """Hopper's default is FlashAttention 3, whose values may be narrower than keys; with 2 they are padded. Decodes by Triton,
    so that the version changes prefill alone."""
    return {"attention_config": {"backend": "TRITON_MLA", "flash_attn_version": version}}


def _ragged(environment: dict[str, str]) -> Side:
    return Side(environment, _prefill("TRTLLM_RAGGED"), plugin="ragged_stand_in.py")


def cached_prompt(server: Server) -> Conversation:
    """A prompt whose prefix another one has left in the cache, against the same with nothing cached."""
    draw = random.Random(2)
    prefix = tokens(draw, 4096)
    first, second = (prefix + tokens(draw, 700) for _ in range(2))
    uncached = server.answer(second)
    yield "uncached", (uncached, uncached)
    server.forget()
    server.answer(first)
    answer = server.answer(second)
    server.expect(bool(answer["cached"]), "the second request found nothing in the cache")
    yield "cached", (uncached, answer)


MLA = (
    Case(
        "order", "vllm", (ORDER,), models.make("deepseek"), alone_and_in_company,
        {"max_model_len": 16384, "max_num_batched_tokens": STEP},
        {STOCK: Side(OFF), PATCHED: Side(), "v1 runner": Side(OFF | V1_RUNNER)},
        red={STOCK: ("chunked", "cached")}, rounding=0.03, same=(Same(PATCHED, STOCK, ("",), 0.03),),
        corrects={PATCHED: (ORDER,)},
    ),
    Case(
        "empty", "vllm", (EMPTY, BASE), models.make("deepseek"), unequal, UNEQUAL,
        {
            REFERENCE: Side(OFF, _prefill("FLASH_ATTN")), STOCK: _ragged(OFF), EMPTY: _ragged(without(BASE)),
            BASE: _ragged(without(EMPTY)), PATCHED: _ragged({}),
        },
        V1_RUNNER, REFERENCE, red=dict.fromkeys((STOCK, EMPTY, BASE), ("all requests",)), rounding=0.05,
        corrects={EMPTY: (EMPTY,), BASE: (BASE,), PATCHED: (EMPTY, BASE)}, emulated=ragged_stand_in.EMULATED,
    ),
    Case(
        "padded", "vllm", (PADDED,), models.make("deepseek"), unequal, UNEQUAL,
        {REFERENCE: Side(OFF, _version(3)), STOCK: Side(OFF, _version(2)), PATCHED: Side({}, _version(2))},
        V1_RUNNER, REFERENCE, red={STOCK: ("all requests",)}, rounding=0.05, corrects={PATCHED: (PADDED,)},
    ),
    Case(
        "quantized", "vllm", (QUANTIZED,), models.make("deepseek", awq=True), cached_prompt,
        {"max_model_len": 16384, "max_num_batched_tokens": 8192} | EAGER, {STOCK: Side(OFF, ends=""), PATCHED: Side()},
        same=(Same(PATCHED, STOCK, ("uncached",), 0.03),), corrects={PATCHED: (QUANTIZED,)},
    ),
)  # fmt: skip

# Two ranks that share the KV, against two that share heads alone

#: Of these, a request's first SHARE tokens lie on one rank, the next on the other
SHARE, NEW = 64, 8
#: Tokens of the prompts. With all that is decoded, those of `dcp` stay on one rank, or lie on both
SHORT = {"on one rank": (3, 6, 11, 20, 33, 50), "on both ranks": (100, 200, 500)}
LONG = {"in one step": (40, 300, 600), "in chunks": (2200, 3000, 3900)}
#: Of prompts that are there together; a long one takes two steps. Model Runner V2 puts requests with fewer tokens first; the
#: former one puts a new request into the row of one that has ended, or behind all
BESIDE = {
    "behind a new one": (1500, 100), "behind a decode, too": (40, 1400, 90), "behind a new one in a free row": (20, 1400, 300),
    "in order": (1100, 300), "alone": (2500,), "all new": (100, 200, 300),
}  # fmt: skip
LEFT_OUT = {STOCK: tuple(BESIDE)[:3], FORMER: tuple(BESIDE)[2:3]}  # scenarios in which the stock one leaves contexts out
TWO_RANKS = {
    "tensor_parallel_size": 2, "max_model_len": 4096, "max_num_batched_tokens": 1024, "disable_custom_all_reduce": True,
} | EAGER  # fmt: skip
SHARED_KV = {"decode_context_parallel_size": 2}


def groups(
    scenarios: Mapping[str, Sequence[int]], ends_first: Mapping[str, list[int]] | None = None, **how: Any
) -> Callable[[Server], Conversation]:
    """All prompts of a scenario at once. ends_first: new tokens of each prompt, where they differ."""

    def ask(server: Server) -> Conversation:
        draw = random.Random(3)
        for scenario, counts in scenarios.items():
            asked = [tokens(draw, count) for count in counts]
            new = (ends_first or {}).get(scenario, NEW)
            yield from ((scenario, one) for one in server.answers(asked, new_tokens=new, **how))
        # vLLM goes on without a word, and a reduce-scatter then leaves what lies in memory
        server.expect("vLLM is using nccl==" in server.said, "vLLM has not loaded NCCL")

    return ask


def ranks(
    name: str, fixes: tuple[str, ...], model: str, ask: Callable[[Server], Conversation], sides: Mapping[str, Side],
    settings: Mapping[str, Any], shared: Mapping[str, Any] | None = None, **about: Any,
) -> Case:  # fmt: skip
    """shared: settings of the sides whose ranks share the KV."""
    plugin = "one_gpu.py" if processes.gpus() < 2 else ""
    executor = {"distributed_executor_backend": "mp"} if plugin else {}  # where it chooses by itself, vLLM counts the GPUs
    kv = SHARED_KV | dict(shared or {})
    served = {REFERENCE: Side(OFF, plugin=plugin)} | {
        key: Side(side.environment, kv | side.settings, plugin, side.ends, side.may_end) for key, side in sides.items()
    }
    made = models.make(model) if model == "deepseek" else models.make(model, kv_heads=1)  # ranks share the KV of one head
    return Case(name, "vllm", fixes, made, ask, TWO_RANKS | executor | settings, served, reference=REFERENCE, gpus=2, **about)


_EMPTY_SHARD: dict[str, Any] = {
    "fixes": (DCP,), "model": "deepseek", "ask": groups(SHORT, at=1), "sides": {STOCK: Side(OFF), PATCHED: Side()},
    "shared": {"cp_kv_cache_interleave_size": SHARE}, "measure": answers.second,  # prefill is as ever
    "red": {STOCK: ("on one rank",)}, "corrects": {PATCHED: (DCP,)},
}  # fmt: skip
_TRITON = {"attention_config": {"backend": "TRITON_MLA"}, "block_size": SHARE}
_NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
_SPLIT = {"": on(SPLIT), "former": on(SPLIT) | V1_RUNNER}
RANKS = (
    ranks("dcp", settings=_TRITON, **_EMPTY_SHARD),
    ranks("dcp-graphs", settings=_TRITON | {"enforce_eager": False, "compilation_config": GRAPHS}, **_EMPTY_SHARD),
    # FlashInfer's prefill needs both fixes as soon as there is context
    ranks(
        "dcp-pages", (PAGES, BASE), "llama", groups(LONG), {STOCK: Side(OFF), PAGES: Side(without(BASE)), PATCHED: Side()},
        {"attention_config": {"backend": "FLASHINFER"}, "enable_flashinfer_autotune": False},
        red={STOCK: tuple(LONG), PAGES: ("in chunks",)}, corrects={PAGES: (PAGES,), PATCHED: (PAGES, BASE)},
    ),
    ranks(
        "dcp-spec", (SPEC,), "deepseek", groups(LONG, at=1), {STOCK: Side(OFF, ends="AssertionError"), PATCHED: Side(on(SPEC))},
        {"enforce_eager": False, "attention_config": {"backend": "FLASHMLA"}, "block_size": SHARE,
         "speculative_config": _NGRAM},
        measure=answers.second, corrects={PATCHED: (SPEC,)},
    ),
    ranks(
        "dcp-split", (SPLIT,), "llama", groups(BESIDE, {"behind a new one in a free row": [1, NEW, NEW]}, together=True),
        {
            STOCK: Side(OFF), PATCHED: Side(on(SPLIT)), FORMER: Side(OFF | V1_RUNNER),
            FORMER_PATCHED: Side(on(SPLIT) | V1_RUNNER),
            "patched, compiled": Side(on(SPLIT), {"enforce_eager": False}, may_end=True),
        },
        {"attention_config": {"backend": "FLASH_ATTN", "flash_attn_version": 2}}, red=LEFT_OUT,
        same=(Same(PATCHED, STOCK, tuple(BESIDE)[3:]), Same(FORMER_PATCHED, FORMER, (*tuple(BESIDE)[:2], *tuple(BESIDE)[3:]))),
        corrects=dict.fromkeys((PATCHED, FORMER_PATCHED, "patched, compiled"), (SPLIT,)),
    ),
)  # fmt: skip

# Hybrid models: states must be those of their prompt

DRAFTS, BUDGET = 3, 1024  # tokens of a step
SPECULATIVE = 1 + DRAFTS  # tokens of a verification
MTP: dict[str, Any] = {
    "max_model_len": 8192, "max_num_batched_tokens": BUDGET,
    "speculative_config": {"method": "mtp", "num_speculative_tokens": DRAFTS},
    "additional_config": {"gdn_prefill_backend": "triton"},  # what Hopper has by default is compiled by FlashInfer
}  # fmt: skip
#: A state's block has 144 tokens (vLLM 0.25.1). Prompts share so small a budget that many of their chunks end within one
SHARED_BUDGET = 320
_FIRST = tuple(90 + 97 * at % 700 for at in range(16))
#: NemotronH's blocks have 560 tokens, and vLLM asks for a step of one block at least
MAMBA2 = {"mamba_cache_mode": "align", "max_num_batched_tokens": 640}
#: Tokens of a block of states of this model in 0.32.0 and 0.33.0, and of a step: two such blocks, and not three tokens more.
#: With room for more, the tokens behind a wrong chunk share their step with two whole blocks, behind which nothing is seen
BLOCK, WHOLE_STEP = 544, 8192
STATE_STEP = 2 * BLOCK + 2
#: Prompt -> blocks of states and tokens behind them. The second chunk is not the last one, and only a few tokens behind it show
#: its state
BLOCKS = {
    "behind a chunk": (4, 3), "behind two": (6, 3), "control, one chunk": (2, 3),
    "control, a checkpoint in the last": (3, 100),
}  # fmt: skip


def twice(server: Server) -> Conversation:
    """Each prompt alone, and then once more, when something of it is cached."""
    cached: dict[str, int] = {}
    for what, prompt in prompts(53, {what: (blocks * BLOCK + more,) for what, (blocks, more) in BLOCKS.items()}, times=12):
        yield what, server.answer(prompt)
        again = server.answer(prompt)
        cached[what] = cached.get(what, 0) + again["cached"]
        yield f"{what}, cached", again
    if server.settings["enable_prefix_caching"]:
        said = re.findall(r"[Ss]etting attention block size to (\d+)", server.said)
        server.expect(set(said) <= {str(BLOCK)}, f"blocks of {said} tokens, the prompts are made for {BLOCK}")
        server.expect(all(cached.values()), f"tokens found in the cache were {cached}")


def short_steps(server: Server) -> Conversation:
    """Prompts of which one step computes as many tokens as a verification has; control: one token more."""
    lengths = {"short": SPECULATIVE, "last chunk": 2 * BUDGET + SPECULATIVE, "control": SPECULATIVE + 1}
    for what, prompt in prompts(49918, {what: (count,) for what, count in lengths.items()}, times=4):
        yield what, server.answer(prompt)


def alone_and_beside(server: Server) -> Conversation:
    """Prompts of one token, one after the other, beside requests that decode all the time. Two tokens are not padded."""
    draw = random.Random(83)
    for what, count in (("one token", 1), ("control, two tokens", 2)):
        asked = [tokens(draw, count) for _ in range(24)]
        company = [tokens(draw, 40) for _ in range(3)]
        # One request's blocks, and its states, are the next one's
        alone = [server.answer(prompt, new_tokens=4, together=True, at=-1) for prompt in asked]
        beside = server.answers(company + asked, new_tokens=[260] * 3 + [4] * 24, together=True, at=-1)[3:]
        yield from ((what, both) for both in zip(alone, beside))


def talks(name: str, model: str, first: tuple[int, ...], settings: dict[str, Any]) -> Case:
    """A state is stored alike with graphs."""
    return Case(
        name, "vllm", (CACHE,), models.make(model), Talk(first, (60,) * 16, more=40, turns=4), MTP | EAGER | settings,
        {STOCK: Side(OFF), PATCHED: Side(on(CACHE, UNIFORM))}, red={STOCK: ("cached turns",)}, rounding=0.5, wrong=1.0,
        free=(STOCK,),
    )  # fmt: skip


def beside_decodes(name: str, model: str) -> Case:
    """One request more than those that decode: the prompts come in one at a time."""
    graphs = {"enforce_eager": False, "compilation_config": GRAPHS | {
        "cudagraph_capture_sizes": [SPECULATIVE * n for n in (1, 2, 3, 4)],
    }}  # fmt: skip
    fixed = on(ONE_TOKEN)
    return Case(
        name, "vllm", (ONE_TOKEN,), models.make(model), alone_and_beside,
        MTP | {"max_model_len": 2048, "max_num_seqs": 4, "enable_prefix_caching": False} | EAGER,
        {
            STOCK: Side(OFF), PATCHED: Side(fixed), REPLAYED: Side(fixed, graphs), FORMER: Side(OFF | V1_RUNNER),
            FORMER_PATCHED: Side(fixed | V1_RUNNER),
        },
        measure=answers.first_two, red=dict.fromkeys((STOCK, FORMER), ("one token",)), red_total=answers.half, rounding=0.3,
        wrong=0.6,
    )  # fmt: skip


_CHUNKED = {"max_num_batched_tokens": STATE_STEP, "mamba_cache_mode": "align"}
_WHOLE = {"max_num_batched_tokens": WHOLE_STEP, "enable_prefix_caching": False}
_UNIFORM_GRAPHS = GRAPHS | {"cudagraph_capture_sizes": [SPECULATIVE * n for n in (1, 2, 4, 8)]}
HYBRID = (
    talks("prefix-cache", "qwen3-next", _FIRST, {"max_num_batched_tokens": SHARED_BUDGET}),
    talks("prefix-cache-mamba2", "nemotron-h", tuple(600 + count for count in _FIRST), MAMBA2),
    Case(
        "mamba-checkpoint", "vllm", (CHECKPOINT,), models.make("nemotron-h"), twice,
        {"max_model_len": WHOLE_STEP, "speculative_config": _NGRAM | {"num_speculative_tokens": 1}} | EAGER,
        {REFERENCE: Side(OFF, _WHOLE), STOCK: Side(OFF, _CHUNKED), PATCHED: Side(on(CHECKPOINT), _CHUNKED)},
        reference=REFERENCE, red={STOCK: [f"{what}{how}" for what in tuple(BLOCKS)[:2] for how in ("", ", cached")]},
        rounding=0.5, wrong=1.0,
    ),
    Case(
        "uniform-decode", "vllm", (UNIFORM,), models.make("qwen3-next"), short_steps,
        MTP | {"enable_prefix_caching": False, "compilation_config": _UNIFORM_GRAPHS},
        {
            REFERENCE: Side(OFF, EAGER | {"compilation_config": None}), STOCK: Side(OFF), PATCHED: Side(on(UNIFORM)),
        },
        V1_RUNNER, REFERENCE, red={STOCK: ("short", "last chunk")}, rounding=0.3, wrong=0.6,
    ),
    beside_decodes("one-token", "qwen3-next"),
    beside_decodes("one-token-mamba2", "nemotron-h"),
)  # fmt: skip

# Scales of queries, keys and values

QUERY = 0.03  # about the largest query over the largest number that FP8 holds
#: One token more than whole pages: the second answer computes that token alone, which is a decode
LENGTHS = (161, 1009, 3201)


def prefill_and_decode(server: Server) -> Conversation:
    for _, prompt in prompts(26, {"": LENGTHS}, times=5):
        yield "prefill", server.answer(prompt)
        answer = server.answer(prompt)
        server.expect(answer["cached"] == len(prompt) - 1, "a prompt had more than one token that was not cached")
        yield "decode", answer


def scaled(name: str, attention: dict[str, Any], sides: dict[str, Side], **about: Any) -> Case:
    """FlashInfer against Triton's backend, which reads the same FP8 cache. Stock is three times as far from it as patched."""
    settings = {"max_model_len": 8192, "max_num_batched_tokens": 8192, "block_size": 16, "kv_cache_dtype": "fp8"}
    return Case(
        name, "vllm", (Q_SCALE,), models.make("llama", calibrated=True, query=QUERY), prefill_and_decode,
        settings | {"enable_flashinfer_autotune": False, "attention_config": {"backend": "FLASHINFER"} | attention} | EAGER,
        {
            REFERENCE: Side(OFF, {"attention_config": {"backend": "TRITON_ATTN"}}), STOCK: Side(OFF),
            PATCHED: Side(on(Q_SCALE)), **sides,
        },
        reference=REFERENCE, measure=answers.distance, total=answers.rms, yardstick=PATCHED, rounding=1.5, wrong=3,
        free=(STOCK,), corrects=dict.fromkeys((PATCHED, *sides), (Q_SCALE,)), **about,
    )  # fmt: skip


SCALES = (
    # Queries keep bfloat16
    scaled(
        "q-scale", {"disable_flashinfer_q_quantization": True},
        {REPLAYED: Side(on(Q_SCALE), {"enforce_eager": False, "compilation_config": GRAPHS})},
        red={STOCK: ("prefill", "decode")},
    ),
    # As Hopper does without a way to NVIDIA's cubins: FP8 prefills, bfloat16 decodes, which alone are corrected
    scaled("q-scale-mixed", {}, {}, red={STOCK: ("decode",)}, same=(Same(PATCHED, STOCK, ("prefill",)),)),
)  # fmt: skip

# Embeddings

CHUNK, EMBEDDED = 2048, (6 * 2048, 11_000, 9_000, 700)
POOLED = {"runner": "pooling", "max_model_len": 16384, "max_num_batched_tokens": CHUNK, "enable_prefix_caching": False} | EAGER


def embeddings(server: Server) -> Conversation:
    """Of each prompt alone, and of all at once."""
    draw = random.Random(41)
    for _ in range(4):
        asked = [tokens(draw, count) for count in EMBEDDED]
        for prompt in asked[:-1]:
            yield "alone", server.answer(prompt, at=None)
        for one in server.answers(asked, at=None):
            yield "together", one


POOLS = (
    Case(
        "pooling", "vllm", (POOLING,), models.large("llama"), embeddings, POOLED,
        {
            REFERENCE: Side(OFF, {"max_num_batched_tokens": 16384, "enable_chunked_prefill": False}), STOCK: Side(OFF),
            PATCHED: Side(on(POOLING)),
        },
        reference=REFERENCE, measure=answers.embedding, red={STOCK: ("alone", "together")}, rounding=0.05, wrong=0.2,
    ),
)  # fmt: skip
CASES = (*MLA, *RANKS, *HYBRID, *SCALES, *POOLS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: Case, holds: Callable[[Case], None]) -> None:
    holds(case)
