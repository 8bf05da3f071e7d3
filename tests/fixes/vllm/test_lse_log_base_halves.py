"""vllm.lse-log-base on the engine's own MLA prefill: both halves of a merge are brought to one base, or none is."""

from __future__ import annotations

import pytest

#: New tokens and context through kernels of these bases; says the output's error and bits, and what became of the fix
RUN = """
import math, sys
from attnfix.patches.shared import lse_base

def hide(part, real=lse_base.one_row):
    "No row of this part can be judged."
    def one_row(q, k, lse, q_at, kv_at, scaling):
        return None if part == ("new" if q_at == kv_at else "context") else real(q, k, lse, q_at, kv_at, scaling)
    lse_base.one_row = one_row

import attnfix
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

mla = MlaPrefill()
mla.prepare()
mla.use()
import flashinfer.prefill
new_tokens, context = (emulators.TrtllmRaggedAttention(base) for base in BASES)
flashinfer.prefill.trtllm_ragged_attention_deepseek = lambda *args, is_causal, **kwargs: (
    new_tokens if is_causal else context)(*args, is_causal=is_causal, **kwargs)
hide(UNSEEN)
seen = []
for _ in range(2):  # two layers
    one = observe(*mla.outputs(20, Batch((70, 65), (23, 12)), ranks=(1,)))
    seen.append([one.error, one.bits])
row = next(row for row in attnfix.status() if row["fix"] == "vllm.lse-log-base")
answer([seen, row["state"], row["reason"]])
"""


def ran(engine_fork, bases, unseen="", **environment):
    return engine_fork("vllm", "0.25.1").evaluate(f"BASES, UNSEEN = {bases!r}, {unseen!r}\n{RUN}", **environment)


@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, bases):
    (stock, *_), (fixed, state, reason) = ran(engine_fork, bases, ATTNFIX="0"), ran(engine_fork, bases)
    assert state == "unknown source" and "neither base" in reason
    assert fixed[1] == stock[1]
    assert fixed[0][0] == pytest.approx(stock[0][0], rel=1e-3)  # in the first layer one half may have come and gone


@pytest.mark.parametrize("unseen", ["new", "context"])
def test_a_half_that_cannot_be_judged_goes_by_the_other(engine_fork, unseen):
    """In the first layer, too: what went before to the merge is converted when the other half is seen."""
    seen, state, _ = ran(engine_fork, (2, 2), unseen)
    assert state == "effective" and max(error for error, _ in seen) < 0.01
