#!/usr/bin/env python3
"""Serves tiny models with a real sglang and FlashInfer's kernels on this machine's GPU, stock (ATTNFIX=0) and with attnfix.

    python -m scripts.serve.gpu_e2e_sglang --case lse
        sglang.lse-log-base: long prompts, uncached and with their prefix cached
    python -m scripts.serve.gpu_e2e_sglang --case hybrid
        sglang.hybrid-chunk-metadata: prefill and decode by two backends
    python -m scripts.serve.gpu_e2e_sglang --case swa
        sglang.flashinfer-swa-prefill: a Gemma 2 with a short window, against float64 and the Triton backend
    python -m scripts.serve.gpu_e2e_sglang --case metrics
        the engine's HTTP server: attnfix on its metrics page and in attnfix status
    python -m scripts.serve.gpu_e2e_sglang --case no-harm
        200 requests where no fix is needed: same tokens, same speed

Needs one GPU of the Hopper generation, sglang 0.5.12-0.5.13.post1 (`swa`: and 0.5.23), nvcc and ninja for FlashInfer, and
attnfix, installed or on PYTHONPATH, attnfix so that its .pth file is processed. No network: models are made here with random
weights, prompts are token ids. Two minutes a case (`no-harm`: eight for each of its models, `--models mla-large dense-large`),
and three more for the first on a machine, when FlashInfer compiles its kernels. Each case merges its figures into
OUT/e2e-<gpu>-sglang-<release>.json; logs of the servers lie beside it. Exits 1 when a check fails.

The log-probabilities of the next token must not depend on where the prefix came from. By default one-shot attention covers
batches up to 128k tokens; SGLANG_MAX_KV_CHUNK_CAPACITY brings the path that merges chunks within reach of a small run, as
trtllm_mla takes it on every prefix hit of 8192.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.serve import e2e, e2e_http, e2e_no_harm, e2e_sglang, tiny_deepseek, tiny_gemma
from scripts.serve.e2e import PATCHED, STOCK, TOP, Server

FIX, HYBRID, SWA = "sglang.lse-log-base", "sglang.hybrid-chunk-metadata", "sglang.flashinfer-swa-prefill"
PREFIX, NEW, PROMPTS = 8192, 64, 4
#: bfloat16 rounds a merge of chunks otherwise than attention at once; the fault is several times that
ROUNDING, RED = 0.08, 0.1
CAPACITY = {"SGLANG_MAX_KV_CHUNK_CAPACITY": "2048"}
SHARED = {
    "attention_backend": "flashinfer", "sampling_backend": "pytorch", "grammar_backend": "none",
    "disable_piecewise_cuda_graph": True, "mem_fraction_static": 0.5, "max_total_tokens": 262144, "context_length": 16384,
}  # fmt: skip


LONG: dict[str, Any] = {**SHARED, "disable_cuda_graph": True, "chunked_prefill_size": -1, "max_prefill_tokens": 32768}


def lse(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    found = _sides(model, out, LONG)
    return {"settings": LONG, "prefix": PREFIX, "new": NEW, "sides": found}, _table(found), lse_failures(found)


def hybrid(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    settings = LONG | {"decode_attention_backend": "triton"}
    found = _sides(model, out, settings, may_end=True)
    lines = [*_table(found), *(f"{name}: {side['said']}" for name, side in found.items() if "ended" in side)]
    return {"settings": settings, "prefix": PREFIX, "new": NEW, "sides": found}, lines, hybrid_failures(found)


def _sides(model: Path, out: Path, settings: dict[str, Any], may_end: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, own in {STOCK: {"ATTNFIX": "0"}, PATCHED: {}}.items():  # one by one: the first compiles FlashInfer's kernels
        with Server(("-m", e2e_sglang.__name__), name, out / "logs", CAPACITY | own) as server:
            started = server.ask("start", model=str(model), **settings)
            e2e.say(f"{name}: up in {started['seconds']} s")
            found[name] = _cached_against_uncached(server, may_end)
            found[name] |= {"environment": CAPACITY | own, "processes": server.status(), "machine": started["machine"]}
        e2e.say(f"{name}: done")
    return found


def _table(found: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<10}{'cached':>8}{'new':>6}{'largest difference':>20}{f'of the top {TOP}':>16}{'equal tokens':>14}"]
    for name, side in found.items():
        for seen in side["each"]:
            figures = f"{seen['difference']:>20.4g}{seen['in_common']:>16}{seen['equal_tokens']:>14}"
            lines.append(f"{name:<10}{seen['cached']:>8}{NEW:>6}{figures}")
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines


def _cached_against_uncached(server: Server, may_end: bool) -> dict[str, Any]:
    draw, each = random.Random(20), []
    for _ in range(PROMPTS):
        prefix, new = ([draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)] for n in (PREFIX, NEW))
        server.ask("forget")
        uncached = server.ask("answer", prompt=prefix + new)
        server.ask("forget")
        server.ask("answer", prompt=prefix)
        cached = server.ask("answer", may_fail=may_end, prompt=prefix + new)
        if "error" in cached:
            said = e2e.errors(server.log.read_text(errors="replace"))
            return {"each": each, "ended": cached["error"], "said": said[-1] if said else None}
        each.append({"cached": cached["cached"], **e2e.compare(uncached, cached)})
    return {"each": each, "compared": {"cached": e2e.worst(each)}}


def hybrid_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Stock either ends or, with the plan of another batch, is wrong."""
    stock, patched = found[STOCK], found[PATCHED]
    wrong = _activity_failures(found, HYBRID)
    if "ended" not in stock and not min(seen["difference"] for seen in stock["each"]) > RED:
        wrong.append("stock: answered, and cached and uncached do not differ")
    if "ended" in patched:
        return [*wrong, f"patched: a request with a cached prefix was not answered: {patched['ended']}; {patched['said']}"]
    if _least_cached(patched) < PREFIX:
        wrong.append(f"patched: {PREFIX} tokens were not cached")
    if not (difference := patched["compared"]["cached"]["difference"]) <= ROUNDING:
        wrong.append(f"patched: cached and uncached differ by {difference:.3g}")
    return wrong


def lse_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = [f"{name}: {PREFIX} tokens were not cached" for name, side in found.items() if _least_cached(side) < PREFIX]
    stock, patched = ([seen["difference"] for seen in found[side]["each"]] for side in (STOCK, PATCHED))
    if not min(stock) > RED:
        wrong.append(f"stock: cached and uncached differ by no more than {min(stock):.3g}")
    if not max(patched) <= ROUNDING:
        wrong.append(f"patched: cached and uncached differ by {max(patched):.3g}")
    return wrong + _activity_failures(found, FIX)


def _activity_failures(found: dict[str, Any], fix: str) -> list[str]:
    wrong = []
    if not e2e.corrections(found[PATCHED]["processes"], fix):
        wrong.append(f"patched: {fix} corrected nothing")
    if found[STOCK]["processes"]:
        wrong.append("stock: attnfix was active")
    if not e2e.alive(found[PATCHED]["processes"]):
        wrong.append("patched: a process that was serving counts as ended")
    return wrong


def _least_cached(side: dict[str, Any]) -> int:
    return min(seen["cached"] for seen in side["each"])


#: Lengths of prompts, in tokens: below the window of 512, above it, and, with PIECE, in several steps
LENGTHS, SEEDS, PIECE = (100, 400, 700, 2000, 6000), 5, 2048
#: Prompts of one measurement of speed, their length, and how many measurements
BATCH, LONG_PROMPT, ROUNDS = 8, 4096, 12
#: How much further from float64 than Triton's answers FlashInfer's may be: over all prompts, and one of them
FURTHER, FURTHEST = 1.5, 2.0
SLOWER = 0.98
_GEMMA = {**SHARED, "context_length": 8192, "mem_fraction_static": 0.2, "max_total_tokens": 65536, "cuda_graph_max_bs": 4}
_PAGED = {"SGLANG_FLASHINFER_USE_PAGED": "1"}
#: side -> (its backend, its environment)
_SIDES: dict[str, tuple[str, dict[str, str]]] = {
    STOCK: ("flashinfer", {"ATTNFIX": "0"}),
    "stock, paged": ("flashinfer", {"ATTNFIX": "0"} | _PAGED),
    PATCHED: ("flashinfer", {f"ATTNFIX_{SWA.upper().replace('.', '_').replace('-', '_')}": "1"}),
    "triton": ("triton", {"ATTNFIX": "0"}),
}


def swa(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """One server at a time, then two at once, in turns, for the speed."""
    small, medium = tiny_gemma.make(folder / "small"), tiny_gemma.make(folder / "medium", tiny_gemma.MEDIUM)
    draw = random.Random(23)
    prompts = [[draw.randrange(2, tiny_gemma.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]
    found: dict[str, Any] = {}
    answers: dict[str, list[dict[str, Any]]] = {}
    for name, (backend, environment) in _SIDES.items():
        with Server(("-m", e2e_sglang.__name__), name.replace(", ", "-"), out / "logs", environment) as server:
            settings = _GEMMA | {"attention_backend": backend, "chunked_prefill_size": PIECE}
            started = server.ask("start", model=str(small), **settings)
            e2e.say(f"{name}: up in {started['seconds']} s")
            answers[name] = [_answers(server, prompt) for prompt in prompts]
            found[name] = {"environment": environment, "processes": server.status(), "machine": started["machine"]}
    exact = tiny_gemma.reference(small, prompts)
    for name, side in found.items():
        side["each"] = [
            {"tokens": len(prompt)} | {how: _error(answer[how]["logprobs"], right) for how in answer}
            | {"cached tokens": answer["cached"]["cached"]}
            for prompt, answer, right in zip(prompts, answers[name], exact)
        ]  # fmt: skip
        side["same as stock"] = [
            sum(one["cold"]["logprobs"] == other["cold"]["logprobs"] for one, other, prompt in zip(
                answers[name], answers[STOCK], prompts) if len(prompt) == n) for n in LENGTHS
        ]  # fmt: skip
    speed = _speeds(medium, out)
    result = {"settings": _GEMMA, "window": tiny_gemma.WINDOW, "chunked prefill": PIECE, "sides": found, "speed": speed}
    return result, _swa_table(found, speed), swa_failures(found, speed)


def _answers(server: Server, prompt: list[int]) -> dict[str, Any]:
    """The next token's log-probabilities, with nothing cached, and with the prompt's first half."""
    server.ask("forget")
    cold = server.ask("answer", prompt=prompt)
    server.ask("forget")
    server.ask("answer", prompt=prompt[: len(prompt) // 2])
    return {"cold": cold, "cached": server.ask("answer", prompt=prompt)}


def _error(logprobs: dict[str, float], exact: Any) -> float:
    """Root mean square of the differences from float64, of the tokens that are listed."""
    return math.sqrt(statistics.fmean((value - float(exact[int(token)])) ** 2 for token, value in logprobs.items()))


def _speeds(model: Path, out: Path) -> dict[str, Any]:
    """Prefill of BATCH prompts behind nothing, in one step and in pieces, patched over stock."""
    draw, seconds = random.Random(24), {STOCK: [], PATCHED: []}
    settings = _GEMMA | {"attention_backend": "flashinfer", "chunked_prefill_size": 16384, "max_prefill_tokens": 16384}
    servers = {name: Server(("-m", e2e_sglang.__name__), f"speed-{name}", out / "logs", _SIDES[name][1]) for name in seconds}
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
    return {name: math.sqrt(statistics.fmean(one[how] ** 2 for one in side["each"])) for name, side in found.items()}


def swa_failures(found: dict[str, Any], speed: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    for how in ("cold", "cached"):
        errors = _totals(found, how)
        if not errors[STOCK] > 3 * errors["triton"]:
            wrong.append(f"stock, {how}: no further from float64 than Triton")
        if not errors[PATCHED] <= FURTHER * errors["triton"]:
            wrong.append(f"patched, {how}: {errors[PATCHED] / errors['triton']:.2f} times as far from float64 as Triton")
        ratios = [ours[how] / theirs[how] for ours, theirs in zip(found[PATCHED]["each"], found["triton"]["each"])]
        if further := sum(ratio > FURTHEST for ratio in ratios):
            wrong.append(
                f"patched, {how}: {further} of {len(ratios)} prompts more than {FURTHEST:g} times, at most {max(ratios):.1f}"
            )
    for n, same in zip(LENGTHS, found[PATCHED]["same as stock"]):
        if n < tiny_gemma.WINDOW and same < SEEDS:
            wrong.append(f"patched: {SEEDS - same} prompts of {n} tokens, within the window, have other bits than stock")
    if not speed["tokens per second"]["ratio"] >= SLOWER:
        wrong.append(f"patched: {speed['tokens per second']['ratio']:.3f} of stock's prefill tokens/s")
    if not e2e.corrections(found[PATCHED]["processes"], SWA):
        wrong.append(f"patched: {SWA} corrected nothing")
    return wrong


def _swa_table(found: dict[str, Any], speed: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<14}{'tokens':>8}{'error, cold':>14}{'half cached':>14}{'same bits as stock':>20}"]
    for name, side in found.items():
        for at, n in enumerate(LENGTHS):
            each = [one for one in side["each"] if one["tokens"] == n]
            errors = (math.sqrt(statistics.fmean(one[how] ** 2 for one in each)) for how in ("cold", "cached"))
            lines.append(
                f"{name:<14}{n:>8}" + "".join(f"{error:>14.4f}" for error in errors) + f"{side['same as stock'][at]:>20}"
            )
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    ratio = speed["tokens per second"]
    return [*lines, f"prefill tokens/s, patched / stock: {ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"]


def metrics(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    launch = ["-m", "sglang.launch_server", "--model-path", "{model}", "--skip-tokenizer-init", "--enable-metrics"]
    launch += ["--host", "127.0.0.1", "--port", "{port}", *e2e_http.flags(LONG)]
    draw = random.Random(21)
    prefix, new = ([draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)] for n in (PREFIX, NEW))
    shared = {"sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
    rounds = [prefix], [prefix + new]  # the second finds the first in the cache
    bodies = lambda at: [shared | {"input_ids": prompt} for prompt in rounds[min(at, 1)]]  # noqa: E731
    return e2e_http.metrics(launch, model, out, CAPACITY, FIX, "/generate", bodies)


def no_harm(models: dict[str, Path], length: e2e_no_harm.Length, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    settings = SHARED | {
        "cuda_graph_max_bs": 64,
        "max_running_requests": 64,
        "chunked_prefill_size": 2048,
        "sleep_on_idle": True,
        "mem_fraction_static": 0.9,  # eight servers share the GPU; max_total_tokens says what each of them takes
    }
    plan = e2e_no_harm.Plan(
        script=("-m", e2e_sglang.__name__), settings=settings, variables=e2e_no_harm.THREADS, cache=None, loaded=None,
        at_work={"mla": {FIX: "installed"}, "dense": {}}, together=True,
    )  # fmt: skip
    return e2e_no_harm.run(plan, models, length, out)


def main() -> int:
    options = e2e_no_harm.with_options(e2e.parser(__doc__, ("lse", "hybrid", "swa", "metrics", "no-harm"))).parse_args()
    e2e.require_attnfix()
    out = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        model = Path(scratch, "model")
        if options.case == "no-harm":
            result, lines, wrong = no_harm(*e2e_no_harm.asked(options, model), out)
            about = result.pop("machine")
        elif options.case == "metrics":
            result, lines, wrong = metrics(tiny_deepseek.make(model), out)
            about = e2e.machine("sglang")
        elif options.case == "swa":
            result, lines, wrong = swa(model, out)
            about = next(iter([side.pop("machine") for side in result["sides"].values()]))
        else:
            result, lines, wrong = {"lse": lse, "hybrid": hybrid}[options.case](tiny_deepseek.make(model), out)
            about = next(iter([side.pop("machine") for side in result["sides"].values()]))
    return e2e.finish(options, about, result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
