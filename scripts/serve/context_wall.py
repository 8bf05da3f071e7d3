"""gpu_e2e_sglang's cases of sglang.fa3-context-limit: requests up to the context length, with drafts, on fa3.

`kernel`: the kernel alone, over the page tables of the engine's own backend. `run`: servers with the model as its own draft
model, and red zones behind the page tables (red_zones/sitecustomize.py), which make reading behind a table an illegal memory
access on each machine. Some prompts stay away from the limit: there stock must be right, and patched equal to it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, tiny_llama
from scripts.serve.e2e import PATCHED, STOCK, Server

FIX = "sglang.fa3-context-limit"
CONTEXT, DRAFTS = 512, 6
#: Tokens of the prompts: all residues of a step of DRAFTS tokens come to the limit
AWAY, NEAR = (30, 100, 200, 300), tuple(CONTEXT - 24 - n for n in range(DRAFTS))
NEW = 24
PLAIN = "no drafts"
_NAMES = PLAIN, STOCK, PATCHED
_ON = {BY_ID[FIX].switch: "1"}
_RED_ZONES = str(Path(__file__).resolve().parent / "red_zones")
SETTINGS: dict[str, Any] = {
    "attention_backend": "fa3", "sampling_backend": "pytorch", "grammar_backend": "none", "disable_piecewise_cuda_graph": True,
    "mem_fraction_static": 0.3, "max_total_tokens": 16384, "context_length": CONTEXT, "cuda_graph_max_bs": 1,
    "max_running_requests": 1, "dtype": "float16",
}  # fmt: skip
SPECULATIVE = {
    "speculative_algorithm": "STANDALONE", "speculative_num_steps": DRAFTS - 1, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": DRAFTS,
}  # fmt: skip
#: Seconds in which one server, or one run of the kernel, must be done
SERVER_S, KERNEL_S = 250, 100
Case = tuple[dict[str, Any], list[str], list[str]]


def kernel() -> Case:
    found = {f"{side}, {words}": _kernel(side, words) for words in ("slots", "none") for side in (STOCK, PATCHED)}
    lines = [
        f"{name:<16}" + (one["error"] if "error" in one else f"error {one['scenario']['error']}") for name, one in found.items()
    ]
    return {"sides": found}, lines, kernel_failures(found)


def run(folder: Path, out: Path) -> Case:
    model = tiny_llama.make(folder / "granite", granite=True)
    draw = random.Random(25)
    prompts = [[draw.randrange(2, tiny_llama.VOCABULARY) for _ in range(n)] for n in (*AWAY, *NEAR)]
    with ThreadPoolExecutor(len(_NAMES)) as pool:  # all sides at once
        found = dict(zip(_NAMES, pool.map(lambda name: _serve(name, model, out, prompts), _NAMES)))
    return {"settings": SETTINGS | SPECULATIVE, "sides": found}, table(found), failures(found)


def _variables(side: str) -> dict[str, str]:
    return _ON if side == PATCHED else {"ATTNFIX": "0"}


def _kernel(side: str, words: str) -> dict[str, Any]:
    """What fa3_wall_kernel prints, or {"error": the last exception that it told of}."""
    root = Path(__file__).resolve().parents[2]
    code = f"import runpy, sys; sys.path.append({str(root)!r}); sys.argv = ['', {words!r}]; "
    code += "runpy.run_module('scripts.serve.fa3_wall_kernel', run_name='__main__')"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code], env=e2e.environment(**_variables(side)), capture_output=True, text=True,
            timeout=KERNEL_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {KERNEL_S} s"}
    if ran.returncode == 0:
        return json.loads(ran.stdout.splitlines()[-1])
    told = e2e.errors(ran.stderr)
    return {"error": told[-1] if told else f"ended with {ran.returncode}: {ran.stderr[-500:]}"}


def _serve(side: str, model: Path, out: Path, prompts: list[list[int]]) -> dict[str, Any]:
    """{"tokens": answers up to the first that did not come, "ended": why it did not, …}"""
    paths = [_RED_ZONES, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = _variables(side) | {"PYTHONPATH": os.pathsep.join(paths)}
    drafts = {} if side == PLAIN else SPECULATIVE | {"speculative_draft_model_path": str(model)}
    with Server(e2e_sglang.SCRIPT, f"wall-{side}".replace(" ", "-"), out / "logs", variables, SERVER_S) as server:
        found: dict[str, Any] = {"environment": _variables(side), "tokens": [], "ended": None, "processes": []}
        started = server.ask("start", may_fail=side != PLAIN, model=str(model), **SETTINGS, **drafts)
        if "error" in started:
            return found | {"ended": f"start: {started['error']}", "said": _said(server)}
        found["machine"] = started["machine"]
        e2e.say(f"{side}: up in {started['seconds']} s")
        for prompt in prompts:
            new = min(NEW, CONTEXT - len(prompt) - 1)
            answer = server.ask("round", may_fail=True, before=[[5] * 8], prompts=[prompt], singles=[], new_tokens=new)
            if "error" in answer:
                found |= {"ended": answer["error"], "said": _said(server)}
                break
            found["tokens"].append(answer["tokens"][0])
        found["processes"] = server.status()
    e2e.say(f"{side}: {len(found['tokens'])} of {len(prompts)} prompts answered")
    return found


def _said(server: Server) -> str | None:
    """The exception in its log that it died of, as far as that can be told: others follow from it."""
    said = e2e.errors(server.log.read_text(errors="replace"))
    return next(filter(_is_red, said), said[0] if said else None)


def _is_red(said: str) -> bool:
    return "illegal memory access" in said or "page_table" in said


def kernel_failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. An error of stock must be the kernel's."""
    wrong = []
    for words in ("slots", "none"):
        stock, patched = (found[f"{side}, {words}"] for side in (STOCK, PATCHED))
        if not _is_red(stock.get("error", "")) and not _is_wrong(stock):
            wrong.append(f"stock, {words}: {stock.get('error', 'right')}")
        if "error" in patched or _is_wrong(patched) or not patched["scenario"]["error"] < 0.01:
            wrong.append(f"patched, {words}: {patched.get('error', 'wrong')}")
        elif not patched["corrections"]:
            wrong.append(f"patched, {words}: {FIX} corrected nothing")
        if "control" in stock and "control" in patched and stock["control"]["bits"] != patched["control"]["bits"]:
            wrong.append(f"{words}: the control has other bits")
    if "control" not in found[f"{STOCK}, slots"]:
        wrong.append("the control of stock did not run")
    return wrong


def _is_wrong(side: dict[str, Any]) -> bool:
    error = side["scenario"]["error"] if "scenario" in side else 0
    return error == "not finite" or error > 0.05


def failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    plain, stock, patched = (found[side]["tokens"] for side in (PLAIN, STOCK, PATCHED))
    count, away = len(AWAY) + len(NEAR), len(AWAY)
    if found[STOCK]["ended"] is None:
        wrong.append("stock: answered all prompts")
    elif len(stock) < away or not _is_red(found[STOCK]["said"] or ""):
        wrong.append(f"stock: answered {len(stock)} prompts, then {found[STOCK]['ended']}, {found[STOCK]['said']}")
    if stock[:away] != patched[:away]:
        wrong.append("away from the limit, patched and stock answer otherwise")
    if len(patched) < count or len(plain) < count:
        wrong.append(f"patched answered {len(patched)}, without drafts {len(plain)} of {count} prompts")
    if 2 * (same := _same(patched, plain)) < count:  # float16 rounds a verification otherwise than a step of one token
        wrong.append(f"patched: {same} of {count} answers are those without drafts")
    if not e2e.corrections(found[PATCHED]["processes"], FIX):
        wrong.append(f"patched: {FIX} corrected nothing")
    return wrong


def _same(answers: list[list[int]], others: list[list[int]]) -> int:
    return sum(one == other for one, other in zip(answers, others))


def table(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, side in found.items():
        same = _same(side["tokens"], found[PLAIN]["tokens"])
        ended = f"; {side['ended']}: {side['said']}" if side["ended"] else ""
        lines.append(f"{name:<12}{len(side['tokens'])} answered, {same} as without drafts{ended}")
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines
