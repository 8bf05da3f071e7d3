#!/usr/bin/env python3
"""What sglang's fixes for window layers on FlashInfer cost: verification on either side of the window, and a start.

    python -m scripts.serve.gpu_windows_cost --case within
        sglang.eagle-swa-verify: n-gram speculation of a Gemma 2, all requests within the window; four servers in turns
    python -m scripts.serve.gpu_windows_cost --case beyond
        the same behind prompts longer than the window, where stock is wrong
    python -m scripts.serve.gpu_windows_cost --case start-stock
        a start with an empty cache of FlashInfer's kernels, two long prompts, and a second start
    python -m scripts.serve.gpu_windows_cost --case start-patched
        the same with all fixes that are on by default: no kernel is compiled while a prompt waits

Needs what scripts/serve/gpu_e2e_sglang.py needs. Two minutes each of the first two, once FlashInfer's kernels are compiled; the
other two compile them, in up to ten minutes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, sglang_verify, tiny_gemma, turns
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.firing_plan import tokens
from scripts.serve.sglang_windows import CAP, SWA
from scripts.serve.turns import Length, Plan

#: Tokens of prompts; with new ones and drafts those of the first are within the window
LENGTHS = {"within": (100, 200, 300, 400), "beyond": sglang_verify.LENGTHS}
NEW, SINGLE = 32, 300
ROUNDS = Length(rounds=6, parts=10, seconds=480)
STARTS = {f"start-{name}": name for name in (STOCK, PATCHED)}
#: How much longer than a second one a first long prompt may take, and seconds in which no kernel is compiled
WAIT_S = 5.0
#: Both sides have prefill as it is: it is right on neither
_OTHERS = {BY_ID[fix].switch: "0" for fix in (SWA, CAP)}


def verify(case: str, scratch: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    model = tiny_gemma.make(scratch, tiny_gemma.MEDIUM, repeats=False)
    settings, repeats = sglang_verify.SETTINGS | sglang_verify.NGRAM, case == "within"

    def traffic(at: int, part: int) -> dict[str, Any]:
        draw = random.Random(f"{part}" if repeats else f"{at} {part}")
        prompts = [tokens(draw, count) for count in LENGTHS[case]]
        sent = {"before": [], "prompts": prompts, "singles": [tokens(draw, SINGLE)], "new_tokens": NEW}
        return sent | {"computed": sum(LENGTHS[case])}

    plan = Plan(e2e_sglang.SCRIPT, settings, turns.THREADS, _OTHERS, repeats=repeats)
    seen = turns.measure(plan, case, model, traffic, ROUNDS, out)
    about = seen.pop("machine", None) or e2e.machine("sglang")
    wrong = [seen["ended"]] if "ended" in seen else failures(case, seen)
    return {"settings": settings, "machine": about, **seen}, turns.table(case, seen), wrong


def failures(case: str, seen: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = [*turns.stock_active(seen), *turns.too_few(seen, ROUNDS), *turns.too_slow(seen)]
    for name, processes in seen["processes"].items():
        if name.endswith(PATCHED) and bool(e2e.corrections(processes, sglang_verify.FIX)) is (case == "within"):
            wrong.append(f"{name}: {sglang_verify.FIX} counts a correction within the window, or none beyond it")
    if case == "within":
        wrong += [
            f"{name}: {count} requests answered as neither stock server did"
            for name, count in seen["requests_answered_as_no_stock_server_did"].items() if count
        ]  # fmt: skip
    return wrong


def start(side: str, scratch: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Twice on one cache of FlashInfer's: empty, then with what the first start has compiled."""
    model, draw = tiny_gemma.make(scratch / "model"), random.Random(37)
    variables = {"FLASHINFER_WORKSPACE_BASE": str(scratch / "cache")} | (turns.OFF if side == STOCK else {})
    found: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for name in ("cold", "warm"):
        server = Server(e2e_sglang.SCRIPT, f"start-{side}-{name}", out / "logs", variables, 580)
        try:
            up = server.ask("start", model=str(model), **sglang_verify.SETTINGS | sglang_verify.NGRAM)
            about, prompts = up["machine"], [tokens(draw, 3000) for _ in range(2)]
            seconds = []
            for prompt in prompts:
                began = time.perf_counter()
                server.ask("answers", prompts=[prompt], new_tokens=NEW)
                seconds.append(round(time.perf_counter() - began, 3))
            found[name] = {"start": up["seconds"], "first long prompts": seconds, "processes": server.status()}
        finally:
            server.close()
        e2e.say(f"{side}, {name}: up in {found[name]['start']} s, long prompts {seconds} s")
    wrong = []
    if side == PATCHED:
        for name, one in found.items():
            first, second = one["first long prompts"]
            if first > second + WAIT_S:
                wrong.append(f"{name}: the first long prompt took {first} s, the second {second} s")
            wrong += [
                f"{name}: {fix} is not effective" for fix in (SWA, CAP, sglang_verify.FIX)
                if not e2e.corrections(one["processes"], fix)
            ]  # fmt: skip
    lines = [
        f"{name:<6}start {one['start']:>7.1f} s, long prompts {one['first long prompts']} s" for name, one in found.items()
    ]
    return {"side": side, "machine": about, **found}, lines, wrong


def main() -> int:
    options = e2e.parser(__doc__, (*LENGTHS, *STARTS)).parse_args()
    e2e.require_attnfix()
    out = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as folder:
        scratch = Path(folder)
        case = options.case
        result, lines, wrong = start(STARTS[case], scratch, out) if case in STARTS else verify(case, scratch / "model", out)
    return e2e.finish(options, result.pop("machine"), result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
