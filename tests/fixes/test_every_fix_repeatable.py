"""A target that is declared repeatable may be run twice in the engine that has it, and is run anew where a correction fails.

Real releases, in fresh processes: what a proof runs has the same bits where each call of such a function is made twice; and
where the correction fails behind its changed call, the result is the engine's own to the bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID, FIXES
from attnfix.prove.runner import CPU

#: Fix -> what fails of ours, behind the engine's function: (module, name). Nothing of one that is off by default, nor where
#: all that can fail is FlashInfer's plan, as in sglang/test_flashinfer_plans_that_fail.py
FAILS = {
    "vllm.dcp-fa2-split": ("attnfix.kernels", "fixup_zero_kv_rows"),
    "vllm.skip-context-zero-fill": None,
    "sglang.flashinfer-swa-prefill": None,
    "sglang.eagle-swa-verify": ("attnfix.patches.sglang.eagle_swa_verify.wrap", "rows_behind"),
    "sglang.fa3-cross-lengths": ("attnfix.patches.sglang.fa3_cross_lengths.wrap", "text_slots"),
    "sglang.dsa-short-prompt-keys": ("attnfix.patches.sglang.dsa_short_prompt_keys.wrap", "apart"),
}
SEED = 20261127

SIDE = """
import functools, importlib, json, math, sys
from attnfix.prove import stubs
request = json.loads(sys.argv[1])
stubs.install(request["engine"])
from attnfix.prove.side import _ease_engine
_ease_engine(request["engine"])
import torch
from attnfix.compat.arming.wrapper import live, swap
from attnfix.patches.catalogue import BY_ID
from attnfix.patches.lab.proof import observed
fix = BY_ID[request["fix"]]
proof = importlib.import_module(f"attnfix.patches.{fix.package}.proof").Proof()
changed, calls = [], []

def twice(function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        before = [value.clone() for value in given]
        first = function(*args, **kwargs)
        bits = [value.clone() for value in tensors(first)]
        result = function(*args, **kwargs)
        calls.append(function.__name__)
        same = all(map(equal, bits, tensors(result)))
        outs = {id(value) for value in tensors(result)}
        if not same or not all(equal(*pair) for pair in zip(given, before) if id(pair[0]) not in outs):
            changed.append(function.__name__)
        return result
    return run

def tensors(result):
    return [value for value in (result if isinstance(result, tuple) else [result]) if isinstance(value, torch.Tensor)]

def equal(one, other):
    return one.flatten().contiguous().view(torch.uint8).equal(other.flatten().contiguous().view(torch.uint8))

if request["twice"]:
    for target in fix.targets:
        for path in target.code_paths if target.repeatable else ():
            try:
                importlib.import_module(path.module)  # which the engine may do in its first call
                function = live(path)
            except (ImportError, AttributeError, KeyError):
                continue
            swap(path, often := twice(function))
            for module in list(sys.modules.values()):  # who has imported it by name
                if getattr(vars(module).get(function.__name__), "__module__", None) == path.module:
                    setattr(module, function.__name__, often)
proof.prepare()
if request["fails"]:
    def fails(*args, **kwargs): raise ValueError("ours")
    setattr(importlib.import_module(request["fails"][0]), request["fails"][1], fails)
seen = [observed(run(request["seed"])) for run in (proof.scenario, proof.control)]
import attnfix
row = next((row for row in attnfix.status() if row["fix"] == fix.id), {"state": None, "reason": None})
answer = {"seen": [[one.error if math.isfinite(one.error) else None, one.bits] for one in seen], "changed": changed}
print("ANSWER" + json.dumps(answer | {"calls": len(calls), "state": row["state"], "reason": row["reason"]}))
"""


def side(fix, release, folder, *, stock, twice=False, fails=None):
    """What the proof sees on this side, with each call made twice, or with a part of the correction that fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment = {**clean, **CPU, "PYTHONPATH": str(fetch.fetch(fix.engine, release)), "ATTNFIX_RUN_DIR": str(folder)}
    if stock:
        environment["ATTNFIX"] = "0"
    request = {"engine": fix.engine, "fix": fix.id, "seed": SEED, "twice": twice, "fails": fails}
    done = subprocess.run(
        [sys.executable, "-c", SIDE, json.dumps(request)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert answers, done.stdout + done.stderr
    return json.loads(answers[-1].removeprefix("ANSWER"))


def repeatable():
    return {fix.id for fix in FIXES if any(getattr(target, "repeatable", False) for target in fix.targets)}


def test_each_is_shown():
    assert repeatable() == FAILS.keys()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", FAILS)
def test_called_twice_it_leaves_what_it_leaves_called_once(name, tmp_path):
    fix = BY_ID[name]
    release = [release for code in ledger.load(fix).code if code.verdict == ledger.AFFECTED for release in code.releases][-1]
    stock, twice = (side(fix, release, tmp_path, stock=True, twice=often) for often in (False, True))
    assert twice["calls"] and not twice["changed"] and twice["seen"] == stock["seen"]
    if FAILS[name]:
        failed = side(fix, release, tmp_path, stock=False, fails=FAILS[name])
        assert failed["state"] == "failed" and "ValueError: ours" in failed["reason"]
        assert failed["seen"] == stock["seen"], "the engine's own result"
