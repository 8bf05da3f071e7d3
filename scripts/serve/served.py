#!/usr/bin/env python3
"""Serves a model of each kind with the engine release that is installed, on this machine's GPU, stock (ATTNFIX=0) and with
attnfix merely installed: does it start, is it patched as the ledgers say, and does it answer as stock does?

    python -m scripts.serve.served
    python -m scripts.serve.served --models mla dense

mla: a DeepSeek-V2. dense: a Llama; on sglang a Granite. windows: a Gemma 2. hybrid: a Qwen3-Next without drafts.

Needs one GPU of the Hopper generation, vLLM or sglang, and attnfix, installed or on PYTHONPATH, attnfix so that its .pth file
is processed. No network: models are made here with random weights, prompts are token ids. All servers start at once, each with
a small share of the GPU's memory. Each model is a case "served …" of OUT/e2e-<gpu>-<engine>-<release>.json. Exits 1 when a
check fails. A model that stock does not serve, either, is no failure: the case tells why.

Prompts are answered cold and with their first half cached, one at a time: most bugs of the catalogue need more than that, and
are cases of gpu_e2e_vllm and gpu_e2e_sglang. Where a fix corrected, stock and patched may differ; where none did, they may not
by more than a server's own rounding.
"""

from __future__ import annotations

import functools
import importlib.util
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from scripts.serve import e2e, e2e_sglang, e2e_vllm, tiny_deepseek, tiny_gemma, tiny_llama, tiny_qwen
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Serving, Side

#: Lengths of prompts, in tokens: below Gemma's window of 512, above it, and, with PIECE, in two steps
LENGTHS, PIECE = (100, 700, 1500, 3000), 2048
#: Differences of two log-probabilities that rounding makes: a batch of another shape, or experts that are chosen otherwise
ROUNDING = {"mla": 0.1, "dense": 0.1, "windows": 0.15, "hybrid": 0.5}
_GEMMA = functools.partial(tiny_gemma.make, repeats=False)
_GRANITE = functools.partial(tiny_llama.make, granite=True)
#: {engine: {kind: (what writes the model, its settings)}}
_VLLM = {"max_model_len": 8192, "max_num_batched_tokens": PIECE, "enforce_eager": True}
_SGLANG = e2e_sglang.SHARED | {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 32768, "chunked_prefill_size": PIECE,
    "cuda_graph_max_bs": 4, "max_running_requests": 8,
}  # fmt: skip
_TRITON = {"attention_backend": "triton"}
MODELS: dict[str, dict[str, tuple[Callable[[Path], Path], dict[str, Any]]]] = {
    "vllm": {
        "mla": (tiny_deepseek.make, _VLLM),
        "dense": (tiny_llama.make, _VLLM),
        "windows": (_GEMMA, _VLLM),
        "hybrid": (tiny_qwen.make, _VLLM | {"additional_config": {"gdn_prefill_backend": "triton"}}),
    },
    "sglang": {
        "mla": (tiny_deepseek.make, _SGLANG),
        "dense": (_GRANITE, _SGLANG),
        "windows": (_GEMMA, _SGLANG | _TRITON),
        "hybrid": (tiny_qwen.make, _SGLANG | _TRITON | {"max_mamba_cache_size": 64}),
    },
}
_WRONG = {"failed", "conflict", "late", "unknown source"}


def run(engine: str, kinds: list[str], scratch: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """All models at once: what finish() writes, its table, and one sentence for each check that does not hold."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        models = dict(zip(kinds, pool.map(lambda kind: _one(engine, kind, scratch / kind, out / kind), kinds)))
    machines = [side.pop("machine") for found in models.values() for side in found["sides"].values() if "machine" in side]
    about = machines[0] if machines else e2e.machine(engine)
    lines, wrong = [], []
    for kind, found in models.items():
        lines += table(kind, found["sides"])
        wrong += [f"{kind}: {sentence}" for sentence in failures(engine, about["release"], kind, found["sides"])]
    return {"models": models, "machine": about}, lines, wrong


def _one(engine: str, kind: str, folder: Path, out: Path) -> dict[str, Any]:
    make, settings = MODELS[engine][kind]
    model = make(folder)
    if engine == "vllm":
        serve = Serving(e2e_vllm.SCRIPT, model, out, e2e_vllm.SHARED | settings, e2e_vllm.VARIABLES, cache="VLLM_CACHE_ROOT")
    else:
        serve = e2e_sglang.serving(model, out, settings)
    sides = {STOCK: Side({"ATTNFIX": "0"}, may_fail=True), PATCHED: Side({}, may_fail=True)}
    found = serve(sides, lambda server: {"answers": _answers(engine, server)})
    both = [side["answers"] for side in found.values() if "answers" in side]
    for side in found.values():
        answers = side.pop("answers", None)
        if answers:
            side["compared"] = {"cold and cached": e2e.worst([e2e.compare(one["cold"], one["cached"]) for one in answers])}
    if len(both) == len(sides):
        for how in ("cold", "cached"):
            pairs = [e2e.compare(one[how], other[how]) for one, other in zip(*both)]
            found[PATCHED]["compared"][f"{how}, and stock"] = e2e.worst(pairs)
    return {"settings": settings, "prompts": LENGTHS, "sides": found}


def _answers(engine: str, server: Server) -> list[dict[str, Any]]:
    """Each prompt, cold and with its first half cached."""
    draw, answers = random.Random(27), []

    def ask(prompt: list[int]) -> dict[str, Any]:
        asked = {"prompts": [prompt]} if engine == "vllm" else {"prompt": prompt}
        answer = server.ask("answer", **asked)
        return answer["answers"][0] if engine == "vllm" else answer

    for count in LENGTHS:
        prompt = [draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(count)]
        server.ask("forget")
        cold = ask(prompt)
        server.ask("forget")
        ask(prompt[: count // 2])
        answers.append({"cold": cold, "cached": ask(prompt)})
    return answers


def failures(engine: str, release: str, kind: str, sides: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Stock is not checked: it is what it is."""
    stock, patched = sides[STOCK], sides[PATCHED]
    if "ended" in patched:
        return [] if "ended" in stock else [f"patched did not start: {patched['said'] or patched['ended']}"]
    wrong = ["stock: attnfix was active"] if stock["processes"] else []
    rows = [(fix, row) for process in patched["processes"] for fix, row in process["fixes"].items()]
    affected = {fix.id for fix in FIXES if fix.engine == engine and ledger.load(fix).verdict(release) == ledger.AFFECTED}
    needed = {fix.id for fix in FIXES if fix.id in affected and fix.default}
    wrong += [f"{fix} is {row['state']}: {row['reason']}" for fix, row in rows if row["state"] in _WRONG]
    told = {fix for fix, _ in rows}
    wrong += [f"{fix} is needed by the ledger, and no process names it" for fix in sorted(needed - told)]
    stands = {fix for fix, row in rows if row["state"] in ("installed", "effective")}
    wrong += [f"{fix} stands, and the ledger does not say affected" for fix in sorted(stands - affected)]
    if "compared" in stock and not any(row["corrections"] for _, row in rows):
        seen = max(patched["compared"][f"{how}, and stock"]["difference"] for how in ("cold", "cached"))
        if not seen <= ROUNDING[kind]:
            wrong.append(f"patched answers otherwise than stock, by {seen:.3g}, and nothing was corrected")
    return wrong


def table(kind: str, sides: dict[str, Any]) -> list[str]:
    lines = []
    for name, side in sides.items():
        if "ended" in side:
            lines.append(f"{kind:<10}{name:<10}did not start: {side['said'] or side['ended']}")
        for what, seen in side.get("compared", {}).items():
            lines.append(f"{kind:<10}{name:<10}{what:<20}{seen['difference']:>10.4g}{seen['equal_tokens']:>6} equal tokens")
        lines += [f"  {line}" for line in e2e.activity(side["processes"]) if "pending" not in line]
    return lines


def main() -> int:
    engine = next((name for name in MODELS if importlib.util.find_spec(name)), None)
    if not engine:
        raise SystemExit("neither vllm nor sglang is installed here, or on PYTHONPATH")
    parser = e2e.parser(__doc__, ["served"])
    case = next(action for action in parser._actions if action.dest == "case")
    case.required, case.default = False, "served"
    parser.add_argument("--models", nargs="+", choices=MODELS[engine], default=list(MODELS[engine]), metavar="KIND")
    options = parser.parse_args()
    e2e.require_attnfix()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        result, lines, wrong = run(engine, options.models, Path(scratch), options.out.resolve())
    return e2e.finish(options, result.pop("machine"), result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
