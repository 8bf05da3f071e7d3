#!/usr/bin/env python3
"""What a fix costs that corrects in nearly every step: patched servers against stock ones, which are wrong, in turns.

    python -m scripts.serve.e2e_firing --list
    python -m scripts.serve.e2e_firing --fix vllm.mla-context-order
    python -m scripts.serve.e2e_firing --engine sglang==0.5.23

--list tells each row of the plan (scripts/serve/firing_plan.py): the fix, the release, the requests that make it correct, and
which fixes have no row, and why. Without --fix, all rows are measured whose bug the installed release has.

Needs one GPU of the Hopper generation with 60 GB (the `vllm.dcp…` rows: two), vLLM or sglang, and attnfix, installed or on
PYTHONPATH, attnfix so that its .pth file is processed. No network: models are made here with random weights, prompts are token
ids. One to three minutes a row for 120 pairs; on a machine without FlashInfer's compiled kernels sglang takes three minutes
more at first. Each row is a case "firing …" of OUT/e2e-<gpu>-<engine>-<release>.json; logs of the servers lie beside it. Exits
1 when a check fails.

Four servers do the same rounds in turns (scripts/serve/turns.py). Tokens/s count the tokens of prompts that are not cached, and
new ones. Stock is wrong there, so tokens are not compared: a row counts if attnfix status told more corrections of that fix
behind each round than before it, in each patched server. Other fixes that the workload needs are off. The interval of tokens/s,
patched / stock, must begin above 0.98, that of the time to the first token end below its inverse.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.evidence.summaries import each_round
from scripts.serve import armed, e2e, e2e_no_harm, e2e_sglang, e2e_vllm, turns
from scripts.serve.e2e import PATCHED
from scripts.serve.firing_plan import BY_FIX, LEFT_OUT, ROWS, Row, tokens
from scripts.serve.turns import Length, Plan

PARTS = 10
PREFIX = "firing "  # of a case's name


def traffic(row: Row) -> turns.Traffic:
    """New prompts in each part, so that nothing but the prefixes is cached; the same for every server."""
    draw = random.Random(31)
    prefixes = [tokens(draw, count) for count in row.prefixes]

    def of(at: int, part: int) -> dict[str, Any]:
        sent = row.part(random.Random(f"{at} {part}"), prefixes)
        cached = (next((len(one) for one in prefixes if prompt[: len(one)] == one), 0) for prompt in sent["prompts"])
        computed = sum(map(len, sent["prompts"])) - sum(cached)
        return {**sent, "before": prefixes if (at, part) == (-1, 0) else [], "keep": True, "computed": computed}

    return of


def plan_of(row: Row) -> Plan:
    variables = turns.THREADS | row.variables
    if row.engine == "sglang":
        return Plan(e2e_sglang.SCRIPT, row.settings, variables, row.patched, repeats=False, waves=row.waves)
    settings, variables = e2e_vllm.SHARED | row.settings, e2e_vllm.VARIABLES | variables
    return Plan(e2e_vllm.SCRIPT, settings, variables, row.patched, repeats=False, waves=row.waves)


def run(rows: Sequence[Row], length: Length, scratch: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """(result, lines of a table, what does not hold) of all rows."""
    result: dict[str, Any] = {"models": {}}
    lines, wrong = [], []
    for row in rows:
        e2e.say(f"{row.fix}: four servers start")
        plan, model = plan_of(row), e2e_no_harm.made(row.make, scratch / row.fix)
        seen = turns.measure(plan, row.fix, model, traffic(row), length, out)
        result["machine"] = seen.pop("machine", None) or result.get("machine") or e2e.machine(row.engine)
        lines += [*turns.table(row.fix, seen), *_corrected(seen, row)]
        invalid = invalidated(seen, row)
        found = [*invalid, *(failures(seen, length) if "ended" not in seen else [])]
        wrong += [f"{row.fix}: {sentence}" for sentence in found]
        about = {
            "fix": row.fix, "workload": row.workload, "settings": plan.settings, "environment": plan.variables,
            "patched": plan.patched, "prefixes": row.prefixes, "gpus": row.gpus,
        }  # fmt: skip
        result["models"][row.fix] = about | turns.without_figures(seen, invalid)
    return result, lines, wrong


def invalidated(seen: dict[str, Any], row: Row) -> list[str]:
    """What makes a row meaningless: a server that ended, no correction, an active stock server."""
    if "ended" in seen:
        return [f"ended: {seen['ended']}"]
    wrong = turns.stock_active(seen)
    counted = each_round(seen, row.fix)
    if not counted:
        wrong.append("corrections were not counted")
    for name, rounds in counted.items():
        if row.once and not seen["corrections"][name][-1].get(row.fix):
            wrong.append(f"{name}: {row.fix} corrected nothing")
        if not row.once and not all(count > 0 for count in rounds):
            wrong.append(f"{name}: {row.fix} corrected in each round {rounds}")
    for name, processes in seen["processes"].items():
        if name.endswith(PATCHED) and not e2e.alive(processes):
            wrong.append(f"{name}: a process that was serving counts as ended")
    return wrong


def failures(seen: dict[str, Any], length: Length) -> list[str]:
    """One sentence for each check of a valid row that does not hold."""
    if "ratio" not in seen:
        return []
    return [*turns.too_few(seen, length), *turns.too_slow(seen), *turns.too_late(seen)]


def _corrected(seen: dict[str, Any], row: Row) -> list[str]:
    return (
        [] if "ended" in seen else [f"  {name}: corrected in each round {of}" for name, of in each_round(seen, row.fix).items()]
    )


def listing() -> str:
    rows = [f"{row.fix}\n    {row.engine} {row.release}: {row.workload}" for row in ROWS]
    rows = [f"{line}; needs {row.needs}" if row.needs else line for line, row in zip(rows, ROWS)]
    return "\n".join([*rows, "", "No row:", *(f"{fix}\n    {why}" for fix, why in LEFT_OUT.items())])


def chosen(engine: str, release: str | None, fixes: Sequence[str] | None) -> list[Row]:
    """The rows that were asked for, else all of that release; ends the script where the release has not the bug."""
    known = armed.affected(engine, release) if release else None
    if fixes:
        rows = [BY_FIX[fix] for fix in fixes]
        other = [row for row in rows if row.engine != engine or (known is not None and row.fix not in known)]
        if other:
            needed = "; ".join(f"{row.fix} needs {row.engine}, say {row.release}" for row in other)
            raise SystemExit(f"{engine} {release or ''} is what is installed here: {needed}")
        return rows
    if known is None:
        raise SystemExit("which release is installed cannot be told: name --fix, or the release in --engine")
    gpus = max(1, e2e.gpus())
    return [row for row in ROWS if row.engine == engine and row.fix in known and row.gpus <= gpus]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    e2e_no_harm.with_options(parser)
    parser.add_argument("--fix", nargs="+", choices=BY_FIX, metavar="FIX", help="which rows (default: all of the release)")
    parser.add_argument("--list", action="store_true", help="print the plan and end")
    parser.set_defaults(case="firing")
    options = parser.parse_args(argv)
    if options.list:
        print(listing())
        return 0
    engine, release = e2e_no_harm.installed(options.engine)
    rows = chosen(engine, release, options.fix)
    e2e.require_attnfix()
    with e2e_no_harm.models(options) as folder:
        result, lines, wrong = run(rows, e2e_no_harm.length_of(options, PARTS), folder, options.out.resolve())
    about = result.pop("machine")
    for fix, seen in result["models"].items():
        asked = f"--engine {about['engine']}=={about['release']} --fix {fix} --pairs {options.pairs}"
        seen["command"] = f"python -m scripts.serve.e2e_firing {asked}"
    return e2e.finish(options, about, result, lines, wrong)


if __name__ == "__main__":
    sys.exit(main())
