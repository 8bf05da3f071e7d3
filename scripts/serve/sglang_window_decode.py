"""Case `window-decode` of scripts/serve/gpu_e2e_sglang.py: the tokens that a Gemma 2 generates on Triton, against float64.

Each step of an answer is compared with a float64 forward over the prompt and what the server has generated before it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, tiny_gemma
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Side

FIX = "sglang.triton-window-decode"
EAGER, FA3 = "patched, no graphs", "fa3"
#: Lengths of prompts: within the window of 512 to the last new token, up to it, and beyond it
LENGTHS, SEEDS, NEW = (400, 500, 900, 2000), 5, 25
#: How much further from float64 than fa3's steps the patched ones may be
FURTHER = 1.3
SETTINGS = e2e_sglang.SHARED | {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 4,
    "max_running_requests": 4, "chunked_prefill_size": 8192, "attention_backend": "triton",
}  # fmt: skip
_ON = {BY_ID[FIX].switch: "1"}
_SIDES = {
    STOCK: Side({"ATTNFIX": "0"}),
    PATCHED: Side(_ON),
    EAGER: Side(_ON, {"disable_cuda_graph": True}),
    FA3: Side({"ATTNFIX": "0"}, {"attention_backend": "fa3"}),
}


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Greedy answers, one request at a time; all sides at once."""
    model, draw = tiny_gemma.make(folder, repeats=False), random.Random(33)
    prompts = [[draw.randrange(2, tiny_gemma.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]
    sides = e2e_sglang.serving(model, out, SETTINGS)(_SIDES, lambda server: {"steps": [_steps(server, one) for one in prompts]})
    steps = {name: side.pop("steps") for name, side in sides.items()}
    for name, side in sides.items():
        texts = [prompt + answer["tokens"][:-1] for prompt, answer in zip(prompts, steps[name])]
        exact = tiny_gemma.reference(model, texts, last=NEW)
        side["each"] = [
            {"tokens": len(prompt), "prefill": _errors(answer, right)[0], "decode": e2e.rms(_errors(answer, right)[1:])}
            for prompt, answer, right in zip(prompts, steps[name], exact)
        ]
        same = [answer == stock for answer, stock in zip(steps[name], steps[STOCK])]
        side["same as stock"] = [sum(same[at * SEEDS : (at + 1) * SEEDS]) for at in range(len(LENGTHS))]
    return {"settings": SETTINGS, "window": tiny_gemma.WINDOW, "new": NEW, "sides": sides}, _table(sides), failures(sides)


def _steps(server: Server, prompt: list[int]) -> dict[str, Any]:
    server.ask("forget")
    return server.ask("steps", prompt=prompt, new_tokens=NEW)


def _errors(answer: dict[str, Any], exact: Any) -> list[float]:
    """How far from float64 each step is, of the tokens that are listed."""
    each = zip(answer["logprobs"], exact, strict=True)
    return [e2e.distance(listed, {token: float(right[int(token)]) for token in listed}) for listed, right in each]


def _beyond(side: dict[str, Any]) -> float:
    """Distance of decode steps behind prompts longer than the window."""
    return e2e.rms(one["decode"] for one in side["each"] if one["tokens"] > tiny_gemma.WINDOW)


def failures(sides: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong, stock, fa3 = [], _beyond(sides[STOCK]), _beyond(sides[FA3])
    if not stock > FURTHER * fa3:
        wrong.append(f"stock: {stock / fa3:.2f} times as far from float64 as fa3")
    for name in (PATCHED, EAGER):
        if not (error := _beyond(sides[name])) <= FURTHER * fa3:
            wrong.append(f"{name}: {error / fa3:.2f} times as far from float64 as fa3")
        if not e2e.corrections(sides[name]["processes"], FIX):
            wrong.append(f"{name}: {FIX} corrected nothing")
    if (same := sides[PATCHED]["same as stock"][0]) < SEEDS:
        wrong.append(f"patched: {SEEDS - same} answers within the window have other bits than stock")
    return wrong


def _table(sides: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<20}{'tokens':>8}{'prefill':>10}{'decode':>10}{'same as stock':>16}"]
    for name, side in sides.items():
        for at, n in enumerate(LENGTHS):
            each = [one for one in side["each"] if one["tokens"] == n]
            errors = (e2e.rms(one[how] for one in each) for how in ("prefill", "decode"))
            lines.append(
                f"{name:<20}{n:>8}" + "".join(f"{error:>10.4f}" for error in errors) + f"{side['same as stock'][at]:>16}"
            )
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines
