"""vllm.lse-log-base on the engine's own MLA prefill: both halves of a merge are brought to one base, or none is."""

from __future__ import annotations

import pytest

#: New tokens and context through kernels of these bases; says the output's error and bits, and what became of the fix
RUN = """
import math, sys
import attnfix
from attnfix.patches import emulators
from attnfix.patches.scenario import observe
from attnfix.patches.vllm import mla_prefill
from attnfix.prove.child import imported_modules
from types import SimpleNamespace

mla_prefill.prepare(imported_modules(SimpleNamespace(MODULES=mla_prefill.MODULES, MAY_LACK=mla_prefill.MODULES)))
mla_prefill.use()
import flashinfer.prefill
new_tokens, context = (emulators.TrtllmRaggedAttention(base) for base in BASES)
flashinfer.prefill.trtllm_ragged_attention_deepseek = lambda *args, is_causal, **kwargs: (
    new_tokens if is_causal else context)(*args, is_causal=is_causal, **kwargs)
seen = []
for _ in range(2):  # two layers
    one = observe(*mla_prefill.outputs(20, mla_prefill.Batch((70, 65), (23, 12)), ranks=(1,)))
    seen.append([one.error, one.bits])
row = next(row for row in attnfix.status() if row["fix"] == "vllm.lse-log-base")
answer([seen, row["state"], row["reason"]])
"""


def ran(engine_fork, bases, **environment):
    return engine_fork("vllm", "0.25.1").evaluate(f"BASES = {bases!r}\n{RUN}", **environment)


@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, bases):
    (stock, *_), (fixed, state, reason) = ran(engine_fork, bases, ATTNFIX="0"), ran(engine_fork, bases)
    assert state == "unknown source" and "neither base" in reason
    assert fixed[1] == stock[1]
    assert fixed[0][0] == pytest.approx(stock[0][0], rel=1e-3)  # in the first layer one half may have come and gone
