"""gpu_e2e_vllm's cases of hybrid models: a Qwen3-Next with its MTP head, whose states must be those of its prompt.

`prefix_cache`: conversations of several turns, all at once, with a token budget that cuts their prompts. What a turn was
answered with, its earlier turns cached, is compared with what the same prompt is answered with alone and with nothing cached.
`uniform_decode`: prompts of which one step computes as many tokens as a verification has, with CUDA graphs and without.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_vllm, tiny_qwen
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.e2e_vllm import OFF, V1_RUNNER
from scripts.serve.sides import Side

UNIFORM = "vllm.gdn-uniform-decode"
CACHE = "vllm.mamba-prefix-cache", UNIFORM
DRAFTS = 3
BUDGET = 1024  # tokens of a step: some blocks of a state
_SETTINGS: dict[str, Any] = {
    "max_model_len": 8192, "max_num_batched_tokens": BUDGET,
    "speculative_config": {"method": "mtp", "num_speculative_tokens": DRAFTS},
    "additional_config": {"gdn_prefill_backend": "triton"},  # what Hopper has by default is compiled by FlashInfer
}  # fmt: skip
#: Tokens of the conversations' first prompts, of an answer, and of what is said then; a state's block has 272
FIRST, ANSWER, NEXT, TURNS = (90, 250, 272, 400, 544, 700, 1030, 1500), 300, 40, 4
SHORT, LONG = 1 + DRAFTS, 2 * BUDGET + 1 + DRAFTS
#: Differences of two log-probabilities: what rounding does at most, and from where on it is the fault
ROUNDING, RED = 0.3, 0.6
EAGER = "without graphs"
Case = tuple[dict[str, Any], list[str], list[str]]


def _on(*fixes: str) -> dict[str, str]:
    return {BY_ID[fix].switch: "1" for fix in fixes}


def prefix_cache(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    settings = _SETTINGS | {"enforce_eager": True}  # a state is stored alike with graphs
    sides = {STOCK: Side(OFF, settings), PATCHED: Side(_on(*CACHE), settings)}
    found = e2e_vllm.serving(tiny_qwen.make(folder), out, one_by_one)(sides, _conversations)
    lines = [
        f"{name:<12}{sum(one['cached'] > 0 for one in side['each']):>4} of {len(side['each'])} prompts found tokens cached; "
        f"largest difference to nothing cached {side['worst']:.3g}, in company {side['floor']:.3g}"
        for name, side in found.items()
    ]
    lines += [f"  {line}" for side in found.values() for line in e2e.activity(side["processes"])]
    return {"settings": e2e_vllm.SHARED | settings, "sides": found}, lines, prefix_cache_failures(found)


def _conversations(server: Server) -> dict[str, Any]:
    """floor: the largest difference that company alone makes, of prompts with nothing cached."""
    draw = random.Random(24)
    talks, asked = [_tokens(draw, count) for count in FIRST], []
    server.ask("forget")
    for turn in range(TURNS):
        answers = server.ask("answer", prompts=talks, new_tokens=ANSWER)["answers"]
        asked += [(turn, talk, answer) for talk, answer in zip(talks, answers)]
        talks = [talk + answer["tokens"] + _tokens(draw, NEXT) for talk, answer in zip(talks, answers)]
    each, company = [], []
    for turn, talk, answer in asked:
        cold = _cold(server, [talk])
        each.append({"turn": turn, "tokens": len(talk), "cached": answer["cached"], **e2e.compare(cold, answer)})
        company.append(e2e.compare(cold, _cold(server, [talk, _tokens(draw, 500)])))
    return {"each": each, "worst": e2e.worst(each)["difference"], "floor": e2e.worst(company)["difference"]}


def _cold(server: Server, prompts: list[list[int]]) -> dict[str, Any]:
    """The first prompt's answer, with nothing cached."""
    server.ask("forget")
    return server.ask("answer", prompts=prompts, new_tokens=1)["answers"][0]


def prefix_cache_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Where nothing was corrected, stock must be right."""
    wrong = [
        f"{name}: no later turn found its first in the cache"
        for name, side in found.items()
        if not any(one["cached"] for one in side["each"] if one["turn"])
    ]
    corrected = any(e2e.corrections(found[PATCHED]["processes"], fix) for fix in CACHE)
    if corrected and not found[STOCK]["worst"] > RED:
        wrong.append(f"stock: cached and uncached differ by no more than {found[STOCK]['worst']:.3g}")
    for name in (PATCHED,) if corrected else (PATCHED, STOCK):
        if not found[name]["worst"] <= ROUNDING:
            wrong.append(f"{name}: cached and uncached differ by {found[name]['worst']:.3g}")
    return wrong


def uniform_decode(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    # Graphs of decodes without Inductor: the fault is in what a replay reads, and a start takes half the time
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [SHORT * n for n in (1, 2, 4, 8)]}
    settings = _SETTINGS | {"enable_prefix_caching": False, "compilation_config": graphs}
    sides = {
        EAGER: Side(OFF | V1_RUNNER, settings | {"enforce_eager": True, "compilation_config": None}),
        STOCK: Side(OFF | V1_RUNNER, settings),
        PATCHED: Side(_on(UNIFORM) | V1_RUNNER, settings),
    }
    found = e2e_vllm.serving(tiny_qwen.make(folder), out, one_by_one)(sides, _short_steps)
    right = found[EAGER].pop("answers")
    for name in (STOCK, PATCHED):
        answers = found[name].pop("answers")
        found[name]["compared"] = {
            what: e2e.worst([e2e.compare(*both) for both in zip(right[what], answers[what])]) for what in right
        }
    result = {"settings": e2e_vllm.SHARED | settings, "sides": found}
    return result, e2e_vllm.table(found), uniform_decode_failures(found)


def _short_steps(server: Server) -> dict[str, Any]:
    """control: one token more."""
    draw = random.Random(49918)
    prompts = {"short": SHORT, "last chunk": LONG, "control": SHORT + 1}
    asked = {what: [_tokens(draw, count) for _ in range(4)] for what, count in prompts.items()}
    ask = lambda prompt: server.ask("answer", prompts=[prompt])["answers"][0]  # noqa: E731
    return {"answers": {what: [ask(prompt) for prompt in some] for what, some in asked.items()}}


def uniform_decode_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    for what in ("short", "last chunk"):
        stock, patched = (found[name]["compared"][what]["difference"] for name in (STOCK, PATCHED))
        if not stock > RED:
            wrong.append(f"stock, {what}: as without graphs, within {stock:.3g}")
        if not patched <= ROUNDING:
            wrong.append(f"patched, {what}: differs from without graphs by {patched:.3g}")
    for name in (STOCK, PATCHED):
        if not (difference := found[name]["compared"]["control"]["difference"]) <= ROUNDING:
            wrong.append(f"{name}, control: differs from without graphs by {difference:.3g}")
    if not e2e.corrections(found[PATCHED]["processes"], UNIFORM):
        wrong.append(f"patched: {UNIFORM} corrected nothing")
    return wrong


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(2, tiny_qwen.VOCABULARY) for _ in range(count)]
