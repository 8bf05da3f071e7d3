"""sglang.lse-log-base on the engine's own chunked-prefix attention: both halves of a merge get one base, or none does."""

from __future__ import annotations

import pytest

#: New tokens and prefix through kernels of these bases, in two layers; says their bits, and what became of the fix
RUN = """
import attnfix
from attnfix.patches.shared import lse_base

def hide(part, real=lse_base.one_row):
    "No row of this part can be judged."
    def one_row(q, k, lse, q_at, kv_at, scaling):
        return None if part == ("new" if q_at == kv_at else "context") else real(q, k, lse, q_at, kv_at, scaling)
    lse_base.one_row = one_row

from types import SimpleNamespace
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.sglang.chunked_prefix import TRTLLM
from attnfix.patches.sglang.lse_log_base.proof import Proof

proof = Proof()
proof.prepare()
proof.use(2)
new_tokens, prefix = (emulators.TrtllmRaggedAttention(base) for base in BASES)
proof.engine[TRTLLM].flashinfer.prefill.trtllm_ragged_attention_deepseek = lambda *args, is_causal, **kwargs: (
    new_tokens if is_causal else prefix)(*args, is_causal=is_causal, **kwargs)
hide(UNSEEN)
seen = [observe(*proof.outputs(20, [37, 33], [23, 12], TRTLLM)) for _ in range(2)]
row = next(row for row in attnfix.status() if row["fix"] == "sglang.lse-log-base")
answer([[[one.error, one.bits] for one in seen], row["state"], row["reason"]])
"""


@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, bases):
    code = f"BASES, UNSEEN = {bases!r}, ''\n{RUN}"
    ways: tuple[dict[str, str], ...] = {"ATTNFIX": "0"}, {}
    (stock, *_), (fixed, state, reason) = (engine_fork("sglang", "0.5.10.post1").evaluate(code, **way) for way in ways)
    assert state == "unknown source" and "neither base" in reason
    assert fixed[1] == stock[1]
    assert fixed[0][0] == pytest.approx(stock[0][0], rel=1e-3)  # in the first layer one half may have come and gone


@pytest.mark.parametrize("unseen", ["new", "context"])
def test_a_half_that_cannot_be_judged_goes_by_the_other(engine_fork, unseen):
    """In the first layer, too: what went before to the merge is converted when the other half is seen."""
    seen, state, _ = engine_fork("sglang", "0.5.10.post1").evaluate(f"BASES, UNSEEN = (2, 2), {unseen!r}\n{RUN}")
    assert state == "effective" and max(error for error, _ in seen) < 0.01
