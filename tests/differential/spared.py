"""Where the condition of a fix does not hold: it counts nothing there, and what the engine computes is stock's to the bit.

A configuration runs stock, and patched with those fixes alone whose `hits` say that it does not hit their bug. Fixes that are
off by default are among them.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from packaging.version import Version

from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import NOT_HIT, OFF, ON
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES, facts_of_fixes

from . import judge, run, space
from .protocol import Answer, Case, Settings

#: engine -> family -> what its configurations have in common
FAMILIES: dict[str, dict[str, Settings]] = {
    "sglang": {
        "paged": {"model": "gqa", "speculative-algorithm": None},
        "latent": {"model": "mla", "speculative-algorithm": None},
        "windows": {"model": "windows", "speculative-algorithm": None},
        "recurrent": {"model": "hybrid"},
        "speculation": {"speculative-algorithm": "EAGLE"},
        "two backends": {
            "model": "mla",
            "dtype": "bfloat16",
            "attention-backend": "trtllm_mla",
            "prefill-attention-backend": None,
            "speculative-algorithm": None,
            "latent-prefix": "chunks",
            "disable-radix-cache": False,
        },
        "context parallelism": {"model": "gqa", "attention-backend": "fa3", "speculative-algorithm": None},
    },
    "vllm": {
        "latent": {"attention": "MLA", "decode-context-parallel-size": 1},
        "ranks": {"decode-context-parallel-size": 2, "tensor-parallel-size": 2, "dtype": "float16"},
        "flashinfer": {"attention-backend": "FLASHINFER", "decode-context-parallel-size": 1, "recurrent": "none"},
        "recurrent": {"recurrent": "mamba2"},
        "scheduling": {"recurrent": "none", "attention-backend": "FLASH_ATTN", "async-scheduling": True},
    },
}
#: What is laid over what was drawn of a family: values that the axes lack
_BEYOND: dict[str, Settings] = {
    "two backends": {"attention-backend": "flashinfer", "prefill-attention-backend": "trtllm_mla"},
    "context parallelism": {"enable-prefill-cp": True, "cp-strategy": "zigzag"},
}
#: Families that begin with a release: what has their options, or the model runner that this harness has recurrent states on
_SINCE = {("sglang", "context parallelism"): Version("0.5.16"), ("vllm", "recurrent"): Version("0.25")}
_WORDS = {"True": ON, "False": OFF}
#: What a model of `tests.support.deployments` is in the space of an engine
_MODELS: dict[str, dict[str, Settings]] = {
    "sglang": {
        "Llama": {"model": "gqa"}, "R1": {"model": "mla"}, "V2": {"model": "mla"}, "Gemma3": {"model": "windows"},
        "Gemma2": {"model": "soft-cap"}, "gpt-oss": {"model": "windows-sinks"}, "Nemotron": {"model": "hybrid"},
        "FP8-KV": {"model": "gqa", "scales": "checkpoint"},
    },
    "vllm": {
        "Llama": {"attention": "MQA", "recurrent": "none", "windows": "none", "sinks": False, "scales": "none"},
        "R1": {"attention": "MLA"}, "V2": {"attention": "MLA"}, "Nemotron": {"recurrent": "mamba2", "windows": "none"},
        "gpt-oss": {"sinks": True, "recurrent": "none"}, "FP8-KV": {"attention": "MQA", "scales": "checkpoint"},
    },
}  # fmt: skip


def spared(case: Case) -> list[str]:
    """The fixes that the code of this release needs, and this configuration does not."""
    settings: Settings = space.whole(case)["settings"]
    part = importlib.import_module(f"tests.differential.{case['engine']}.space")
    config, gpu, words = part.deployment(settings)
    launch = read(words)
    deployment = Deployment(case["engine"], Version(case["release"]), config, gpus.named(gpu), launch, launch.variables)
    facts = diagnosis.facts(deployment, facts_of_fixes(case["engine"]))
    fixes = [fix for fix in FIXES if fix.engine == case["engine"] and fix.hits]
    affected = (fix for fix in fixes if ledger.load(fix).verdict(case["release"]) == ledger.AFFECTED)
    return [fix.id for fix in affected if fix.hits(facts).verdict == NOT_HIT]


def harm(stock: Answer, patched: Answer) -> str | None:
    """What fixes did where none was needed: which of them counted, or where the patched side is another one than stock.

    Where stock is wrong, another bug is there, of which the steps before it tell alone; unless a fix made that right, or fails.
    """
    theirs, ours = judge.fault(stock), judge.fault(patched)
    counted = dict.fromkeys(patched.get("corrections", {}), -1) | patched.get("corrected_by", {})
    if "refused" in (ends := (stock["ended"], patched["ended"])) and ends[0] != ends[1]:
        return f"stock {ends[0]}, patched {ends[1]}"
    if failed := patched.get("missing"):
        return ", ".join(f"{fix} {state}" for fix, state in failed.items())
    if theirs and (not ours or ours.step > theirs.step):
        return f"{', '.join(counted) or 'a fix that counted nothing'} corrected it: {theirs.what}"
    until = theirs.step if theirs else None
    found = [f"{fix} counted" for fix, step in sorted(counted.items()) if until is None or step < until]
    if ours and (until is None or ours.step < until):
        found.append(f"patched only: {ours.what}")
    elif theirs and ours and _ends_otherwise(_end(theirs, stock), _end(ours, patched), patched, bool(counted)):
        found.append(f"{', '.join(counted) or 'nothing'} counted, and {ours.what}")
    elif other := judge.difference(_up_to(until, stock), {**_up_to(until, patched), "corrected_by": {}}):
        found.append(other)
    return "; ".join(found) or None


def _end(fault: judge.Fault, answer: Answer) -> tuple[str, str] | None:
    """How a side ended where that is what is wrong; None for a wrong output. Of an error the type alone: a call with a wrong
    argument fails in a wrapper of ours, and an index that was never written is another each time."""
    if fault.step < len(answer["steps"]):
        return None
    return answer["ended"], answer["error"]["type"] if answer["ended"] == "raised" else ""


def _ends_otherwise(stock: tuple[str, str] | None, ours: tuple[str, str] | None, patched: Answer, counted: bool) -> bool:
    """Beside another bug in the same step. Where stock goes on with a wrong output, an error of the engine's own may be that
    bug, too. `where` of an error: the last three parts of a path."""
    if stock is None and ours and ours[0] == "raised" and not counted:
        return any(part in patched["error"]["where"] for part in ("/wrap.py:", "/shared/"))
    return stock != ours


def _up_to(step: int | None, answer: Answer) -> Answer:
    return {**answer, "steps": answer["steps"][:step]}


@dataclass
class Tally:
    """configurations: that spared a fix and ran. spared, called: of each fix, in how many, and in how many of these its target
    was called with the fix armed. harms: (case, what)."""

    configurations: int = 0
    spared: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)
    harms: list[tuple[Case, str]] = field(default_factory=list)

    def take(self, sides: run.Sides, case: Case, **more: Any) -> None:
        case = space.whole(case)
        if not (fixes := spared(case)):
            return
        stock, patched = sides.answers(case, only=fixes, **more)
        if stock["ended"] == patched["ended"] == "refused":
            return
        self.configurations += 1
        self.spared.update(fixes)
        self.called.update(patched.get("effective", ()))
        if what := harm(stock, patched):
            self.harms.append((case, what))


def families(engine: str, release: str) -> list[str]:
    """Those that can be drawn on the release."""
    return [name for name in FAMILIES[engine] if Version(release) >= _SINCE.get((engine, name), Version("0"))]


def drawn(engine: str, release: str, family: str, seed: int) -> Iterator[Case]:
    """Without end."""
    cases, beyond = space.cases(engine, release, seed, FAMILIES[engine][family]), _BEYOND.get(family, {})
    return ({**case, "settings": case["settings"] | beyond} for _, case in cases)


def named(engine: str, release: str, deployments: Iterable[tuple[Any, ...]], seed: int) -> Iterator[tuple[Case, set[str]]]:
    """Of what tests of `hits` name as spared: a case of each launch that the space has, and the fixes named for it."""
    axes, of_axes = space.space_of(engine).axes, dict[str, set[str]]()
    words = {name: {_WORDS.get(str(value), str(value)): value for value in values} for name, values in axes.items()}
    for fix, _, model, _, launch, verdict, _ in deployments:
        if verdict != NOT_HIT or not launch or not fix.startswith(engine) or model not in _MODELS[engine]:
            continue
        options = {name: word for name, word in read(shlex.split(launch)).options.items() if name != "model-path"}
        if all(word in words.get(name, ()) for name, word in options.items()):
            settings = _MODELS[engine][model] | {name: words[name][word] for name, word in options.items()}
            of_axes.setdefault(json.dumps(settings, sort_keys=True), set()).add(fix)
    for settings_of, fixes in of_axes.items():
        settings = json.loads(settings_of)
        if not space.why_not(space.space_of(engine), release, settings):
            yield next(case for _, case in space.cases(engine, release, seed, settings)), fixes


def tally(sides: run.Sides, cases: Iterator[Case], count: int, **more: Any) -> Tally:
    """Of so many configurations that spare a fix and that the engine does not refuse; fewer where it refuses nearly all."""
    found = Tally()
    for case in islice(cases, 20 * count):
        found.take(sides, case, **more)
        if found.configurations == count:
            break
    return found
