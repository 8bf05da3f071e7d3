"""Case `windows` of scripts/serve/gpu_e2e_sglang.py: a Gemma 2, whose layers have a short window and a soft cap, on FlashInfer.

Next-token log-probabilities against a float64 forward of the same weights, and beside the Triton backend's: stock, stock in the
engine's paged-only mode, with each of the two fixes alone, and with both; and the speed of prefill.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, tiny_gemma
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Side, cold_and_cached

SWA, CAP = "sglang.flashinfer-swa-prefill", "sglang.flashinfer-soft-cap"
#: Lengths of prompts, in tokens: below the window of 512, above it, and, with PIECE, in several steps
LENGTHS, SEEDS, PIECE = (100, 400, 700, 2000, 6000), 5, 2048
#: Prompts of one measurement of speed, their length, and how many measurements
BATCH, LONG_PROMPT, ROUNDS = 8, 4096, 12
#: How much further from float64 than Triton's answers FlashInfer's may be: over all prompts, and one of them
FURTHER, FURTHEST = 1.5, 2.0
SLOWER = 0.98
SETTINGS = {
    **e2e_sglang.SHARED, "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 4,
}  # fmt: skip


def _switches(window: bool, cap: bool) -> dict[str, str]:
    return {BY_ID[SWA].switch: str(int(window)), BY_ID[CAP].switch: str(int(cap))}


WINDOW_ALONE, CAP_ALONE = "window alone", "soft cap alone"
_FLASHINFER = {"attention_backend": "flashinfer"}
_SIDES = {
    STOCK: Side({"ATTNFIX": "0"}, _FLASHINFER),
    "stock, paged": Side({"ATTNFIX": "0", "SGLANG_FLASHINFER_USE_PAGED": "1"}, _FLASHINFER),
    WINDOW_ALONE: Side(_switches(window=True, cap=False), _FLASHINFER),
    CAP_ALONE: Side(_switches(window=False, cap=True), _FLASHINFER),
    PATCHED: Side(_switches(window=True, cap=True), _FLASHINFER),
    "triton": Side({"ATTNFIX": "0"}, {"attention_backend": "triton"}),
}


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """All sides at once, then two servers at once, in turns, for the speed."""
    small, medium = tiny_gemma.make(folder / "small"), tiny_gemma.make(folder / "medium", tiny_gemma.MEDIUM)
    draw = random.Random(23)
    prompts = [[draw.randrange(2, tiny_gemma.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]
    serve = e2e_sglang.serving(small, out, SETTINGS | {"chunked_prefill_size": PIECE})
    found = serve(_SIDES, cold_and_cached(prompts))
    answers = {name: side.pop("answers") for name, side in found.items()}
    exact = tiny_gemma.reference(small, prompts)
    for name, side in found.items():
        side["each"] = [
            {"tokens": len(prompt)} | {how: _error(answer[how]["logprobs"], right) for how in answer}
            | {"cached tokens": answer["cached"]["cached"]}
            for prompt, answer, right in zip(prompts, answers[name], exact)
        ]  # fmt: skip
        side["same as stock"] = _same(answers[name], answers[STOCK], prompts)
        side["same as with the soft cap alone"] = _same(answers[name], answers[CAP_ALONE], prompts)
    speed = _speeds(medium, out)
    result = {"settings": SETTINGS, "window": tiny_gemma.WINDOW, "chunked prefill": PIECE, "sides": found, "speed": speed}
    return result, _table(found, speed), failures(found, speed)


def _error(logprobs: dict[str, float], exact: Any) -> float:
    """How far from float64, of the tokens that are listed."""
    return e2e.distance(logprobs, {token: float(exact[int(token)]) for token in logprobs})


def _same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], prompts: list[list[int]]) -> list[int]:
    """How many prompts of each length, with nothing cached, have equal log-probabilities to the bit."""
    equal = e2e.same_bits(ours, theirs)
    return [sum(same for same, prompt in zip(equal, prompts) if len(prompt) == n) for n in LENGTHS]


def _speeds(model: Path, out: Path) -> dict[str, Any]:
    """Prefill of BATCH prompts behind nothing, in one step and in pieces, patched over stock."""
    draw, seconds = random.Random(24), {STOCK: [], PATCHED: []}
    settings = SETTINGS | _FLASHINFER | {"chunked_prefill_size": 16384, "max_prefill_tokens": 16384}
    logs = out / "logs"
    servers = {name: Server(e2e_sglang.SCRIPT, f"speed-{name}", logs, _SIDES[name].environment) for name in seconds}
    try:
        for name, server in servers.items():
            e2e.say(f"speed, {name}: up in {server.ask('start', model=str(model), **settings)['seconds']} s")
        for at in range(ROUNDS + 2):
            prompts = [[draw.randrange(2, tiny_gemma.VOCABULARY) for _ in range(LONG_PROMPT)] for _ in range(BATCH)]
            for name in list(servers)[:: 1 if at % 2 else -1]:
                took = servers[name].ask("round", before=[[5] * 8], prompts=prompts, singles=[], new_tokens=1)["seconds"]
                if at >= 2:
                    seconds[name].append(took)
    finally:
        for server in servers.values():
            server.close()
    ratio = e2e.ratio(seconds[STOCK], seconds[PATCHED])  # tokens/s: patched over stock
    return {"prompts": BATCH, "tokens": LONG_PROMPT, "seconds": seconds, "tokens per second": ratio}


def _totals(found: dict[str, Any], how: str) -> dict[str, float]:
    return {name: e2e.rms(one[how] for one in side["each"]) for name, side in found.items()}


def failures(found: dict[str, Any], speed: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    for how in ("cold", "cached"):
        errors = _totals(found, how)
        if not errors[STOCK] > 3 * errors["triton"]:
            wrong.append(f"stock, {how}: no further from float64 than Triton")
        if not errors[WINDOW_ALONE] > errors[PATCHED]:
            wrong.append(f"window alone, {how}: no further from float64 than with the soft cap")
        if not errors[PATCHED] <= FURTHER * errors["triton"]:
            wrong.append(f"patched, {how}: {errors[PATCHED] / errors['triton']:.2f} times as far from float64 as Triton")
        ratios = [ours[how] / theirs[how] for ours, theirs in zip(found[PATCHED]["each"], found["triton"]["each"])]
        if further := sum(ratio > FURTHEST for ratio in ratios):
            wrong.append(
                f"patched, {how}: {further} of {len(ratios)} prompts more than {FURTHEST:g} times, at most {max(ratios):.1f}"
            )
    for at, n in enumerate(LENGTHS):
        if n < tiny_gemma.WINDOW:
            wrong += [
                f"{side}: {SEEDS - same} prompts of {n} tokens, within the window, have other bits than {other}"
                for side, key, other in ((WINDOW_ALONE, "stock", STOCK), (PATCHED, "with the soft cap alone", CAP_ALONE))
                if (same := found[side][f"same as {key}"][at]) < SEEDS
            ]
    if not speed["tokens per second"]["ratio"] >= SLOWER:
        wrong.append(f"patched: {speed['tokens per second']['ratio']:.3f} of stock's prefill tokens/s")
    wrong += [
        f"patched: {fix} corrected nothing" for fix in (SWA, CAP) if not e2e.corrections(found[PATCHED]["processes"], fix)
    ]
    return wrong


def _table(found: dict[str, Any], speed: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<16}{'tokens':>8}{'error, cold':>14}{'half cached':>14}{'same bits as stock':>20}"]
    for name, side in found.items():
        for at, n in enumerate(LENGTHS):
            each = [one for one in side["each"] if one["tokens"] == n]
            errors = (e2e.rms(one[how] for one in each) for how in ("cold", "cached"))
            lines.append(
                f"{name:<16}{n:>8}" + "".join(f"{error:>14.4f}" for error in errors) + f"{side['same as stock'][at]:>20}"
            )
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    ratio = speed["tokens per second"]
    return [*lines, f"prefill tokens/s, patched / stock: {ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"]
