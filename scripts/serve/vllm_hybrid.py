"""gpu_e2e_vllm's cases of hybrid models: a Qwen3-Next with its MTP head, whose states must be those of its prompt.

`prefix_cache`: conversations of several turns, all at once, with a token budget that cuts their prompts.
`mamba2_prefix_cache`: the same with a NemotronH.
`mamba_checkpoint`: a NemotronH with one draft token, prompts in chunks of two blocks of states.
`uniform_decode`: prompts of which one step computes as many tokens as a verification has, with CUDA graphs and without.
`one_token`, `mamba2_one_token`: prompts of one token beside requests that decode, against the same prompts alone.
"""

from __future__ import annotations

import random
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import conversations, e2e, e2e_vllm, tiny_nemotron, tiny_qwen
from scripts.serve.conversations import Talk
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.e2e_vllm import FORMER, FORMER_PATCHED, OFF, V1_RUNNER
from scripts.serve.sides import Side

UNIFORM, CHECKPOINT = "vllm.gdn-uniform-decode", "vllm.mamba-stale-checkpoint"
PADDED = "vllm.padded-one-token-prompt"
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
EAGER, WHOLE = "without graphs", "nothing cached"
#: Tokens of a block of states of this model in 0.32.0 and 0.33.0, and of a step: two such blocks, and not three tokens more.
#: With room for more, the tokens behind a wrong chunk share their step with two whole blocks, behind which nothing is seen
BLOCK, WHOLE_STEP = 544, 8192
STEP = 2 * BLOCK + 2
#: Differences of two log-probabilities of a prompt that was computed in chunks, against at once: the same, and from where on
#: the state was wrong
CHUNKED, STALE = 0.5, 1.0
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


def mamba_checkpoint(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    draft = {"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_max": 4}
    settings = {"max_model_len": WHOLE_STEP, "enforce_eager": True, "speculative_config": draft}
    chunked = settings | {"max_num_batched_tokens": STEP, "mamba_cache_mode": "align"}
    sides = {
        WHOLE: Side(OFF, settings | {"max_num_batched_tokens": WHOLE_STEP, "enable_prefix_caching": False}),
        STOCK: Side(OFF, chunked),
        PATCHED: Side(_on(CHECKPOINT), chunked),
    }
    found = e2e_vllm.serving(tiny_nemotron.make(folder), out, one_by_one)(sides, _two_blocks)
    right = found[WHOLE].pop("answers")
    answers = {name: found[name].pop("answers") for name in (STOCK, PATCHED)}
    for name, seen in answers.items():
        pairs = {what: list(zip(right[what], seen[what])) for what in right}
        found[name]["each"] = {what: [e2e.compare(*both) for both in some] for what, some in pairs.items()}
        found[name]["compared"] = {what: e2e.worst(some) for what, some in found[name]["each"].items()}
    # Told, not checked: kernels of the scan are tuned by each server
    found[PATCHED]["same bits"] = {
        what: answers[STOCK][what] == answers[PATCHED][what] for what in answers[STOCK] if what.startswith("control")
    }
    result = {"settings": e2e_vllm.SHARED | chunked, "sides": found, "shown": not well_answered(found)}
    return result, e2e_vllm.table(found), mamba_checkpoint_failures(found)


_TIMES = 12  # each prompt, with other tokens
#: Prompt -> blocks of states and tokens behind them. The second chunk is not the last one, and only a few tokens behind it show
#: its state
_PROMPTS = {
    "behind a chunk": (4, 3), "behind two": (6, 3),
    "control, one chunk": (2, 3),
    "control, a checkpoint in the last": (3, 100),
}  # fmt: skip


def _two_blocks(server: Server) -> dict[str, Any]:
    """Each prompt alone, and then once more: what is cached by then is said, too."""
    draw = random.Random(53)
    ask = lambda prompt: server.ask("answer", prompts=[prompt])["answers"][0]  # noqa: E731
    said = re.findall(r"[Ss]etting attention block size to (\d+)", server.log.read_text(errors="replace"))
    answers: dict[str, list[dict[str, Any]]] = {}
    cached: dict[str, list[int]] = {}
    for what, (blocks, more) in _PROMPTS.items():
        for _ in range(_TIMES):
            prompt = _tokens(draw, blocks * BLOCK + more)
            for how in what, f"{what}, cached":
                one = ask(prompt)
                answers.setdefault(how, []).append(one)
                cached.setdefault(how, []).append(one.pop("cached"))
    return {"answers": answers, "cached": cached, "block size": said}


def well_answered(found: dict[str, Any]) -> list[str]:
    """Of the prompts that stock has to answer wrongly, those that it does not."""
    compared = found[STOCK]["compared"].items()
    return [what for what, seen in compared if not what.startswith("control") and not seen["difference"] > STALE]


def mamba_checkpoint_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    for what, stock in found[STOCK]["compared"].items():
        patched = found[PATCHED]["compared"][what]["difference"]
        if not patched <= CHUNKED:
            wrong.append(f"patched, {what}: differs from {WHOLE} by {patched:.3g}")
        if what.startswith("control") and not stock["difference"] <= CHUNKED:
            wrong.append(f"stock, {what}: differs from {WHOLE} by {stock['difference']:.3g}")
        if what in well_answered(found):
            wrong.append(f"stock, {what}: as with {WHOLE}, within {stock['difference']:.3g}")
    for name in (STOCK, PATCHED):
        if any(size != str(BLOCK) for size in found[name]["block size"]):
            wrong.append(f"{name}: blocks of {found[name]['block size']} tokens, the prompts are made for {BLOCK}")
        wrong += [
            f"{name}, {what}: nothing was found in the cache"
            for what, tokens in found[name]["cached"].items()
            if what.endswith(", cached") and not any(tokens)
        ]
    if not e2e.corrections(found[PATCHED]["processes"], CHECKPOINT):
        wrong.append(f"patched: {CHECKPOINT} corrected nothing")
    return wrong


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


#: Requests that decode all the time, their tokens and new ones; and prompts that are served one after the other beside them
_DECODE, _COMPANY, _LONG_ANSWER, _ASKED, _ANSWER = 3, 40, 260, 24, 4
#: How many tokens the prompts have. Two are not padded
_LENGTHS = {"one token": 1, "control, two tokens": 2}
REPLAYED = "patched, graphs"


def one_token(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    return _short_beside_long(tiny_qwen.make(folder), out, one_by_one)


def mamba2_one_token(folder: Path, out: Path, one_by_one: bool = False) -> Case:
    return _short_beside_long(tiny_nemotron.make(folder), out, one_by_one)


def _short_beside_long(model: Path, out: Path, one_by_one: bool) -> Case:
    # One request more than those that decode: the prompts come in one at a time
    settings = SETTINGS | {
        "max_model_len": 2048, "max_num_seqs": _DECODE + 1, "enable_prefix_caching": False, "enforce_eager": True,
    }  # fmt: skip
    graphs = e2e_vllm.GRAPHS | {"cudagraph_capture_sizes": [SHORT * n for n in (1, 2, 3, 4)]}
    on = _on(PADDED)
    sides = {
        STOCK: Side(OFF, settings),
        PATCHED: Side(on, settings),
        REPLAYED: Side(on, settings | {"enforce_eager": False, "compilation_config": graphs}),
        FORMER: Side(OFF | V1_RUNNER, settings),
        FORMER_PATCHED: Side(on | V1_RUNNER, settings),
    }
    found = e2e_vllm.serving(model, out, one_by_one)(sides, _alone_and_beside)
    for side in found.values():
        side["compared"] = {}
        for what, answers in side.pop("answers").items():
            # A second token is of the same request only behind the same first one
            pairs = [(a, b) for a, b in zip(*answers) if not what.endswith("second") or a["tokens"][0] == b["tokens"][0]]
            each = [e2e.compare(*both) for both in pairs]
            side.setdefault("of", {})[what] = {"compared": len(each), "wrong": sum(one["difference"] > RED for one in each)}
            if each:
                side["compared"][what] = e2e.worst(each)
    lines = [f"{name}: {side['of']}" for name, side in found.items()]
    return {"settings": e2e_vllm.SHARED | settings, "sides": found}, [*e2e_vllm.table(found), *lines], one_token_failures(found)


def _alone_and_beside(server: Server) -> dict[str, Any]:
    """{"one token, first": (answers alone, answers beside), …}: log-probabilities of the first and of the second token."""
    draw = random.Random(83)
    answers: dict[str, Any] = {}
    for what, count in _LENGTHS.items():
        prompts = [_tokens(draw, count) for _ in range(_ASKED)]
        company = [_tokens(draw, _COMPANY) for _ in range(_DECODE)]
        new = [_LONG_ANSWER] * _DECODE + [_ANSWER] * _ASKED
        for at, which in enumerate(("first", "second")):
            ask = lambda asked, new, at=at: server.ask("answer", prompts=asked, new_tokens=new, together=True, at=at)["answers"]  # noqa: E731
            # One request's blocks, and its states, are the next one's
            alone = [ask([prompt], _ANSWER)[0] for prompt in prompts]
            answers[f"{what}, {which}"] = alone, ask(company + prompts, new)[_DECODE:]
    return {"answers": answers}


def one_token_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. The first token may be right, and the state behind it wrong."""
    wrong = []
    for name, side in found.items():
        stock = name in (STOCK, FORMER)
        right = [what for what in side["of"] if not stock or what.startswith("control")]
        for what in right:
            if side["of"][what]["compared"] < _ASKED / 2:
                wrong.append(f"{name}, {what}: {side['of'][what]['compared']} of {_ASKED} answers can be compared")
            elif not side["compared"][what]["difference"] <= ROUNDING:
                wrong.append(f"{name}, {what}: differs from alone by {side['compared'][what]['difference']:.3g}")
        if stock and not any(side["of"][what]["wrong"] >= _ASKED / 2 for what in side["of"] if what not in right):
            wrong.append(f"{name}: prompts of one token are answered as alone")
        if not stock and not e2e.corrections(side["processes"], PADDED):
            wrong.append(f"{name}: {PADDED} corrected nothing")
    return wrong


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(2, tiny_qwen.VOCABULARY) for _ in range(count)]
