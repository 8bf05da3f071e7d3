#!/usr/bin/env python3
"""Serves a model of each kind with the engine release that is installed, on this machine's GPU, stock (ATTNFIX=0) and with
attnfix merely installed: does it start, is it patched as the ledgers say, and does it answer as stock does?

    python -m scripts.serve.served
    python -m scripts.serve.served --models mla dense
    python -m scripts.serve.served --models mla --patched-only

mla: a DeepSeek-V2. dense: a Llama; on sglang a Granite. windows: a Gemma 2. hybrid: a Qwen3-Next, on sglang a NemotronH,
without drafts.

Needs one GPU of the Hopper generation, vLLM or sglang, and attnfix, installed or on PYTHONPATH, attnfix so that its .pth file
is processed. No network: models are made here with random weights, prompts are token ids. All servers start at once, each with
a small share of the GPU's memory. Each model is a case "served …" of OUT/e2e-<gpu>-<engine>-<release>.json. Exits 1 when a
check fails, or where nothing is served. A model among others that stock does not serve, either, is no failure: the case tells
why.

Prompts are answered cold, with their first half cached, and all at once: many bugs of the catalogue need more than that, and
are cases of gpu_e2e_vllm and gpu_e2e_sglang. Neither a cached half nor company may move an answer by more than a server's own
rounding; patched must hold to that, or be no further than stock. Where no fix corrected, patched answers as stock does.
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

from scripts.serve import armed, e2e, e2e_sglang, e2e_vllm, tiny_deepseek, tiny_gemma, tiny_llama, tiny_nemotron, tiny_qwen
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Serving, Side

#: Lengths of prompts, in tokens: below Gemma's window of 512, above it, and, with PIECE, in two steps
LENGTHS, PIECE = (100, 700, 1500, 3000), 2048
#: Differences of two log-probabilities that rounding makes: a batch of another shape, or experts that are chosen otherwise
ROUNDING = {"mla": 0.1, "dense": 0.1, "windows": 0.15, "hybrid": 0.5}
#: What must not move an answer: its prompt's first half in the cache, and other prompts in the same steps
MOVED = "cached", "together"
_GEMMA = functools.partial(tiny_gemma.make, repeats=False)
_GRANITE = functools.partial(tiny_llama.make, granite=True)
#: {engine: {kind: (what writes the model, its settings)}}
_VLLM = {"max_model_len": 8192, "max_num_batched_tokens": PIECE, "enforce_eager": True}
_SGLANG = e2e_sglang.SHARED | {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 32768, "chunked_prefill_size": PIECE,
    "cuda_graph_max_bs": 4, "max_running_requests": 8,
}  # fmt: skip
_TRITON = {"attention_backend": "triton"}
#: States are kept at the least distance, and there are enough of them for all that is asked
_STATES = {
    "max_mamba_cache_size": 200, "mamba_scheduler_strategy": "extra_buffer", "mamba_track_interval": tiny_nemotron.CHUNK,
}  # fmt: skip
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
        "hybrid": (tiny_nemotron.make, _SGLANG | _TRITON | _STATES),
    },
}


def run(
    engine: str, kinds: list[str], scratch: Path, out: Path, patched_only: bool
) -> tuple[dict[str, Any], list[str], list[str]]:
    """All models at once: what finish() writes, its table, and one sentence for each check that does not hold."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        models = dict(zip(kinds, pool.map(lambda kind: _one(engine, kind, scratch / kind, out / kind, patched_only), kinds)))
    machines = [side.pop("machine") for found in models.values() for side in found["sides"].values() if "machine" in side]
    about = machines[0] if machines else e2e.machine(engine)
    lines, wrong = [], []
    for kind, found in models.items():
        lines += table(kind, found["sides"])
        wrong += [f"{kind}: {sentence}" for sentence in failures(engine, about["release"], kind, found["sides"])]
    every = [side for found in models.values() for side in found["sides"].values()]
    if not wrong and all("ended" in side for side in every):
        wrong.append(f"no model was served: {every[0]['said'] or every[0]['ended']}")
    return {"models": models, "machine": about}, lines, wrong


def _one(engine: str, kind: str, folder: Path, out: Path, patched_only: bool) -> dict[str, Any]:
    make, settings = MODELS[engine][kind]
    model = make(folder)
    if engine == "vllm":
        serve = Serving(e2e_vllm.SCRIPT, model, out, e2e_vllm.SHARED | settings, e2e_vllm.VARIABLES, cache="VLLM_CACHE_ROOT")
    else:
        serve = e2e_sglang.serving(model, out, settings)
    sides = {PATCHED: Side({}, may_fail=True)}
    if not patched_only:
        sides = {STOCK: Side({"ATTNFIX": "0"}, may_fail=True)} | sides
    found = serve(sides, lambda server: {"answers": _answers(engine, server)})
    both = [side["answers"] for side in found.values() if "answers" in side]
    for side in found.values():
        answers = side.pop("answers", None)
        if answers:
            pairs = {how: [e2e.compare(one["cold"], one[how]) for one in answers] for how in MOVED}
            side["compared"] = {f"cold and {how}": e2e.worst(each) for how, each in pairs.items()}
    if len(both) == 2:
        for how in ("cold", *MOVED):
            beside = [e2e.compare(one[how], other[how]) for one, other in zip(*both)]
            found[PATCHED]["compared"][f"{how}, and stock"] = e2e.worst(beside)
    return {"settings": settings, "prompts": LENGTHS, "sides": found}


def _answers(engine: str, server: Server) -> list[dict[str, Any]]:
    """Each prompt, cold and in each of MOVED."""
    draw = random.Random(27)
    prompts = [[draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(count)] for count in LENGTHS]

    def ask(*together: list[int]) -> list[dict[str, Any]]:
        if engine == "vllm":
            return server.ask("answer", prompts=list(together), together=len(together) > 1)["answers"]
        return server.ask("answers", prompts=list(together))["answers"]

    answers = []
    for prompt in prompts:
        server.ask("forget")
        cold = ask(prompt)[0]
        server.ask("forget")
        ask(prompt[: len(prompt) // 2])
        answers.append({"cold": cold, "cached": ask(prompt)[0]})
    server.ask("forget")
    return [one | {"together": answer} for one, answer in zip(answers, ask(*prompts))]


def failures(engine: str, release: str, kind: str, sides: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Stock's answers are not checked: they are what they are."""
    stock, patched = sides.get(STOCK, {}), sides[PATCHED]
    if "ended" in patched:
        why = patched["said"] or patched["ended"]
        if STOCK not in sides:
            return [f"did not start, and stock was not tried: {why}"]
        return [] if "ended" in stock else [f"patched did not start: {why}"]
    wrong = ["stock: attnfix was active"] if stock.get("processes") else []
    wrong += armed.failures(engine, release, patched["processes"])
    for how in MOVED:
        moved, allowed = _moved(patched, how), max(_moved(stock, how), ROUNDING[kind])
        if not moved <= allowed:
            wrong.append(f"patched: {how} moves an answer by {moved:.3g}, which is above {allowed:.3g}")
    corrected = any(row["corrections"] for process in patched["processes"] for row in process["fixes"].values())
    if "compared" in stock and not corrected:
        seen = max(patched["compared"][f"{how}, and stock"]["difference"] for how in ("cold", *MOVED))
        if not seen <= ROUNDING[kind]:
            wrong.append(f"patched answers otherwise than stock, by {seen:.3g}, and nothing was corrected")
    return wrong


def _moved(side: dict[str, Any], how: str) -> float:
    """How far that moves an answer, at most; of a server that did not answer, 0."""
    return side["compared"][f"cold and {how}"]["difference"] if "compared" in side else 0.0


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
    parser.add_argument("--patched-only", action="store_true", help="no stock server")
    options = parser.parse_args()
    e2e.require_attnfix()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        result, lines, wrong = run(engine, options.models, Path(scratch), options.out.resolve(), options.patched_only)
    return e2e.finish(options, result.pop("machine"), result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
