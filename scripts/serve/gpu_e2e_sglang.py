#!/usr/bin/env python3
"""Serves tiny models with a real sglang and FlashInfer's kernels on this machine's GPU, stock (ATTNFIX=0) and with attnfix.

    python -m scripts.serve.gpu_e2e_sglang --case lse
        sglang.lse-log-base: long prompts, uncached and with their prefix cached
    python -m scripts.serve.gpu_e2e_sglang --case hybrid
        sglang.hybrid-chunk-metadata: prefill and decode by two backends
    python -m scripts.serve.gpu_e2e_sglang --case windows
        sglang.flashinfer-swa-prefill and sglang.flashinfer-soft-cap: a Gemma 2 with a short window, against float64 and the
        Triton backend
    python -m scripts.serve.gpu_e2e_sglang --case fp8-prefix
        sglang.flashinfer-fp8-prefix: a Llama with a calibrated FP8 KV cache, uncached and with half of the prompt cached
    python -m scripts.serve.gpu_e2e_sglang --case mamba2
        the sglang.mamba… fixes: conversations with a NemotronH, whose states the radix cache keeps
    python -m scripts.serve.gpu_e2e_sglang --case verify
        sglang.eagle-swa-verify: n-gram speculation of a Gemma 2 behind prompts longer than its window, against none
    python -m scripts.serve.gpu_e2e_sglang --case window-decode
        sglang.triton-window-decode: the tokens that a Gemma 2 generates on Triton beyond its window, against float64 and fa3
    python -m scripts.serve.gpu_e2e_sglang --case draft-lengths
        sglang.mla-draft-lengths: how many drafts of a DeepSeek-V2 are accepted, on FlashInfer and FlashMLA, against fa3
    python -m scripts.serve.gpu_e2e_sglang --case context-wall
        sglang.fa3-context-limit: a Llama with drafts on fa3, up to the context length
    python -m scripts.serve.gpu_e2e_sglang --case context-wall-kernel
        the same, FlashAttention 3 alone over the backend's page tables
    python -m scripts.serve.gpu_e2e_sglang --case metrics
        the engine's HTTP server: attnfix on its metrics page and in attnfix status

Needs one GPU of the Hopper generation, sglang 0.5.12-0.5.13.post1 (`windows`, `context-wall`, `window-decode`,
`draft-lengths`: and 0.5.22-0.5.23; `verify`: 0.5.23; `mamba2`: 0.5.13-0.5.17), nvcc and ninja for FlashInfer, and attnfix,
installed or on PYTHONPATH, attnfix so that its .pth file is processed. No network: models are made here with random weights,
prompts are token ids. Two minutes a case, and three more for the first on a machine, when FlashInfer compiles its kernels. Each
case merges its figures into OUT/e2e-<gpu>-sglang-<release>.json; logs of the servers lie beside it. Exits 1 when a check fails.

The log-probabilities of the next token must not depend on where the prefix came from. By default one-shot attention covers
batches up to 128k tokens; SGLANG_MAX_KV_CHUNK_CAPACITY brings the path that merges chunks within reach of a small run, as
trtllm_mla takes it on every prefix hit of 8192.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.serve import (
    context_wall,
    e2e,
    e2e_http,
    e2e_sglang,
    sglang_draft_lengths,
    sglang_fp8_prefix,
    sglang_mamba2,
    sglang_verify,
    sglang_window_decode,
    sglang_windows,
    tiny_deepseek,
)
from scripts.serve.e2e import PATCHED, STOCK, TOP, Server
from scripts.serve.sides import Side

FIX, HYBRID = "sglang.lse-log-base", "sglang.hybrid-chunk-metadata"
PREFIX, NEW, PROMPTS = 8192, 64, 4
#: bfloat16 rounds a merge of chunks otherwise than attention at once; the fault is several times that
ROUNDING, RED = 0.08, 0.1
CAPACITY = {"SGLANG_MAX_KV_CHUNK_CAPACITY": "2048"}
LONG: dict[str, Any] = {
    **e2e_sglang.SHARED,
    "disable_cuda_graph": True,
    "chunked_prefill_size": -1,
    "max_prefill_tokens": 32768,
}


def lse(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    found = _sides(model, out, LONG)
    return {"settings": LONG, "prefix": PREFIX, "new": NEW, "sides": found}, _table(found), lse_failures(found)


def hybrid(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    settings = LONG | {"decode_attention_backend": "triton"}
    found = _sides(model, out, settings, may_end=True)
    lines = [*_table(found), *(f"{name}: {side['said']}" for name, side in found.items() if "ended" in side)]
    return {"settings": settings, "prefix": PREFIX, "new": NEW, "sides": found}, lines, hybrid_failures(found)


def _sides(model: Path, out: Path, settings: dict[str, Any], may_end: bool = False) -> dict[str, Any]:
    serve = e2e_sglang.serving(model, out, settings, one_by_one=True)  # the first compiles FlashInfer's kernels
    sides = {STOCK: Side(CAPACITY | {"ATTNFIX": "0"}), PATCHED: Side(CAPACITY)}
    return serve(sides, lambda server: _cached_against_uncached(server, may_end))


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


def metrics(model: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    launch = ["-m", "sglang.launch_server", "--model-path", "{model}", "--skip-tokenizer-init", "--enable-metrics"]
    launch += ["--host", "127.0.0.1", "--port", "{port}", *e2e_http.flags(LONG)]
    draw = random.Random(21)
    prefix, new = ([draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)] for n in (PREFIX, NEW))
    shared = {"sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
    rounds = [prefix], [prefix + new]  # the second finds the first in the cache
    bodies = lambda at: [shared | {"input_ids": prompt} for prompt in rounds[min(at, 1)]]  # noqa: E731
    return e2e_http.metrics(launch, model, out, CAPACITY, FIX, "/generate", bodies)


#: Cases that make their models themselves, in the folder that they are given
_OWN_MODELS = {
    "windows": sglang_windows.run, "fp8-prefix": sglang_fp8_prefix.run, "mamba2": sglang_mamba2.run,
    "verify": sglang_verify.run, "window-decode": sglang_window_decode.run, "draft-lengths": sglang_draft_lengths.run,
}  # fmt: skip
CASES = ("lse", "hybrid", *_OWN_MODELS, "context-wall", "context-wall-kernel", "metrics")


def main() -> int:
    options = e2e.parser(__doc__, CASES).parse_args()
    e2e.require_attnfix()
    out = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        model = Path(scratch, "model")
        if options.case == "metrics":
            result, lines, wrong = metrics(tiny_deepseek.make(model), out)
            about = e2e.machine("sglang")
        elif options.case in _OWN_MODELS:
            result, lines, wrong = _OWN_MODELS[options.case](model, out)
            about = e2e.machine_of(result["sides"])
        elif options.case == "context-wall":
            result, lines, wrong = context_wall.run(model, out)
            about = result["sides"][context_wall.PLAIN].pop("machine")
        elif options.case == "context-wall-kernel":
            result, lines, wrong = context_wall.kernel()
            about = e2e.machine("sglang")
        else:
            result, lines, wrong = {"lse": lse, "hybrid": hybrid}[options.case](tiny_deepseek.make(model), out)
            about = e2e.machine_of(result["sides"])
    return e2e.finish(options, about, result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
