"""The fixes of MLA prefill together, in a real release: what they leave to the engine, and how they get there late."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, uninitialised
from attnfix.patches.vllm.prefill_context_merge import proof

mla = proof.Proof()
mla.prepare()

def run(batch, undefined=False):
    mla.use(undefined)
    return observe(*mla.outputs(5, batch))

def row(fix):
    import attnfix
    found = next(row for row in attnfix.status() if row["fix"] == fix)
    return found["state"], found["counters"]["corrections"]

UNEQUAL = Batch((70, 1, 20, 0, 0), (3, 2, 4, 5, 0), decodes=1)  # padded by a request without tokens
PADDED = Batch((70, 65, 0, 0, 0), (3, 2, 4, 5, 0), decodes=2)
MERGE, ROWS, FILL = "vllm.prefill-context-merge", "vllm.empty-context-chunks", "vllm.skip-context-zero-fill"
"""
RELEASES = ["0.13.0", "0.19.1"]  # one of each home of the code


ON = {"ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE": "1"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("filled", [True, False])
def test_all_together_give_the_right_result(engine_fork, release, filled):
    """Whatever the order of the requests, and whatever fresh memory holds."""
    code = HEAD + (
        "errors = []\n"
        "for batch in (UNEQUAL, PADDED, proof._NOT_FIRST, proof._ALL):\n"
        "    for value in (float('nan'), 7.0):\n"
        "        with uninitialised(value): errors.append(run(batch).error)\n"
        "answer([max(errors), row(MERGE), row(ROWS), row(FILL)])"
    )
    switches = ON if filled else {**ON, "ATTNFIX_VLLM_SKIP_CONTEXT_ZERO_FILL": "1"}
    worst, merge, rows, fill = engine_fork("vllm", release).evaluate(code, **switches)
    assert worst < 0.01
    assert [merge[0], rows[0], fill[0]] == ["effective", "not affected", "off" if filled else "effective"]
    assert merge[1] and bool(fill[1]) is not filled


def test_where_context_does_not_come_first_the_engines_own_merge_runs(engine_fork):
    code = HEAD + "seen = run(proof._NOT_FIRST)\nanswer([seen.error, seen.bits, row(MERGE)])"
    environment = engine_fork("vllm", "0.19.1")
    error, bits, merge = environment.evaluate(code, **ON)
    assert error < 0.01 and merge == ["effective", 0]
    assert environment.evaluate(code, ATTNFIX="0")[:2] == [error, bits]


def test_activated_late_the_names_imported_from_the_merge_are_rebound(engine_python):
    environment = engine_python("vllm", "0.19.1")
    pth = environment.site / "attnfix.pth"
    text = pth.read_text()
    pth.unlink()
    try:
        code = (
            "import vllm.model_executor.layers.attention.mla_attention as mla\n"
            "import vllm.v1.attention.backends.flash_attn as flash_attn\n"
            "import vllm.v1.attention.ops.merge_attn_states as home\n"
            "plain = mla.merge_attn_states is home.merge_attn_states is flash_attn.merge_attn_states\n"
            "import attnfix\nattnfix.activate()\n"
            "same = mla.merge_attn_states is home.merge_attn_states is flash_attn.merge_attn_states\n"
        )
        code += HEAD + "answer([plain, same, run(proof._MIXED, undefined=True).error, row(MERGE)])"
        plain, same, error, merge = environment.evaluate(code, **ON)
    finally:
        pth.write_text(text)
    assert (plain, same, merge, error < 0.01) == (True, True, ["effective", 2], True), (error, merge)
