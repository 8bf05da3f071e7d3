"""Somebody else's hotfix of a bug that attnfix knows, at a function that is no target of ours: the bug is corrected once."""

from __future__ import annotations

import pytest

# It converts the LSEs that reach MLA's merge: where the merge is defined, or under the name by which MLA has imported it
HOTFIX = """
import functools, importlib, math
import attnfix
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm import mla_prefill

when, where = {when!r}, {where!r}
HOMES = "vllm.v1.attention.ops.merge_attn_states", "vllm.attention.ops.merge_attn_states"

def hotfix():
    for name in HOMES if where == "home" else (mla_prefill.MLA,):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        module.merge_attn_states = around(module.merge_attn_states)
        return

def around(stock):
    @functools.wraps(stock)
    def merge_attn_states(*args, **given):
        for name in ("prefix_lse", "suffix_lse"):
            given[name] = given[name] * math.log(2)
        return stock(*args, **given)
    return merge_attn_states

if when == "before":
    hotfix()
proof = mla_prefill.MlaPrefill()
proof.prepare_any()
proof.use(lse_base=2)
if when == "after":
    hotfix()
batch = mla_prefill.Batch((14, 9, 16), (3, 2, 4))  # of one chunk: each LSE reaches one merge
error = observe(*proof.outputs(7, batch, "fi", "bfloat16")).error
states = dict((row["fix"], row) for row in attnfix.status())
answer(dict(error=error, state=states["vllm.lse-log-base"]["state"], reason=states["vllm.lse-log-base"]["reason"]))
"""


@pytest.mark.parametrize(
    "release, when, where",
    [
        ("0.19.1", "after", "importer"),
        ("0.25.1", "before", "home"),
        ("0.25.1", "after", "importer"),
        ("0.28.0", "after", "importer"),
    ],
)
def test_a_witness_that_somebody_has_replaced_is_a_conflict(engine_fork, release, when, where):
    python, code = engine_fork("vllm", release), HOTFIX.format(when=when, where=where)
    others = {"ATTNFIX_VLLM_QUANTIZED_MLA_CONTEXT": "0"}
    assert python.evaluate(code, ATTNFIX="0", **others)["error"] < 0.01, "the hotfix alone"
    told = python.evaluate(code, **others)
    assert told["error"] < 0.01 and told["state"] == "conflict"
    assert "merge_attn_states" in told["reason"] and "(<string>:" in told["reason"]
