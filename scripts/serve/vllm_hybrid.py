"""gpu_e2e_vllm's cases of hybrid models: a Qwen3-Next with its MTP head, whose states must be those of its prompt.

`prefix_cache`: conversations of several turns, all at once, with a token budget that cuts their prompts.
`mamba2_prefix_cache`: the same with a NemotronH.
`uniform_decode`: prompts of which one step computes as many tokens as a verification has, with CUDA graphs and without.
"""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import conversations, e2e, e2e_vllm, tiny_nemotron, tiny_qwen
from scripts.serve.conversations import Talk
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.e2e_vllm import OFF, V1_RUNNER
from scripts.serve.sides import Side

UNIFORM = "vllm.gdn-uniform-decode"
CACHE = "vllm.mamba-prefix-cache", UNIFORM
DRAFTS = 3
BUDGET = 1024  # tokens of a step
SETTINGS: dict[str, Any] = {
    "max_model_len": 8192, "max_num_batched_tokens": BUDGET,
    "speculative_config": {"method": "mtp", "num_speculative_tokens": DRAFTS},
    "additional_config": {"gdn_prefill_backend": "triton"},  # what Hopper has by default is compiled by FlashInfer
}  # fmt: skip
#: A state's block has 144 tokens (vLLM 0.25.1). Prompts share so small a budget that many of their chunks end within one
SHARED_BUDGET = 320
_TALK = Talk(
    first=tuple(90 + 97 * at % 700 for at in range(16)), answer=(60,) * 16, more=40, turns=4, vocabulary=tiny_qwen.VOCABULARY
)
#: NemotronH's blocks have 560 tokens, and vLLM asks for a step of one block at least
_MAMBA2_TALK = replace(_TALK, first=tuple(600 + count for count in _TALK.first))
MAMBA2 = {"mamba_cache_mode": "align", "max_num_batched_tokens": 640}
SHORT, LONG = 1 + DRAFTS, 2 * BUDGET + 1 + DRAFTS
#: Differences of two log-probabilities: what rounding does at most, and from where on it is the fault
ROUNDING, RED = 0.3, 0.6
EAGER = "without graphs"
Case = tuple[dict[str, Any], list[str], list[str]]


def _on(*fixes: str) -> dict[str, str]:
    return {BY_ID[fix].switch: "1" for fix in fixes}


def prefix_cache(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    return _cached_turns(tiny_qwen.make(folder), out, one_by_one, _TALK, {"max_num_batched_tokens": SHARED_BUDGET})


def mamba2_prefix_cache(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    return _cached_turns(tiny_nemotron.make(folder), out, one_by_one, _MAMBA2_TALK, MAMBA2)


def _cached_turns(model: Path, out: Path, one_by_one: bool, talk: Talk, more: dict[str, Any]) -> Case:
    settings = SETTINGS | {"enforce_eager": True} | more  # a state is stored alike with graphs
    sides = {STOCK: Side(OFF, settings), PATCHED: Side(_on(*CACHE), settings)}
    found = e2e_vllm.serving(model, out, one_by_one)(sides, lambda server: _conversations(server, talk))
    result = {"settings": e2e_vllm.SHARED | settings, "talk": asdict(talk), "sides": found}
    return result, conversations.table(found), conversations.failures(found, CACHE)


def _conversations(server: Server, talk: Talk) -> dict[str, Any]:
    answer = lambda prompts, new: server.ask("answer", prompts=prompts, new_tokens=new)["answers"]  # noqa: E731
    return talk(answer, lambda: server.ask("forget"))


def uniform_decode(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    # Graphs of decodes without Inductor: the fault is in what a replay reads, and a start takes half the time
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [SHORT * n for n in (1, 2, 4, 8)]}
    settings = SETTINGS | {"enable_prefix_caching": False, "compilation_config": graphs}
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
