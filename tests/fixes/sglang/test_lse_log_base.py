"""sglang.lse-log-base: each part of a merge is judged by itself, and both parts get one base."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import INSTALLED, FixState
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.sglang.lse_log_base.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

HEADS, D, SCALE = 2, 32, 32**-0.5
NEW, CHUNK = [4, 17], [16, 18]
LAYER = SimpleNamespace(tp_q_head_num=HEADS, tp_k_head_num=HEADS, head_dim=D, scaling=SCALE)
TARGETS = {"flashinfer": one_call.target_of(FIX, "forward"), "trtllm": one_call.target_of(FIX, "forward_extend")}


def ragged(lse_base, kv_lens, causal):
    kernel = emulators.RaggedWrapper(lse_base)
    kernel.plan(cumulative(NEW), cumulative(kv_lens), causal=causal, sm_scale=SCALE)
    return kernel


class Backend:
    """Two kernels, of new tokens and of a chunk; `forward` hands on what the part's own returns."""

    data_type = torch.bfloat16

    def __init__(self, new_tokens, prefix):
        self.ragged_wrapper, self.chunk_ragged_wrappers = ragged(new_tokens, NEW, True), [None, ragged(prefix, CHUNK, False)]

    def engines(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        prefix = forward_batch.attn_attend_prefix_cache
        kernel = self.chunk_ragged_wrappers[forward_batch.prefix_chunk_idx] if prefix else self.ragged_wrapper
        return kernel.run(q, k, v, return_lse=forward_batch.mha_return_lse)


def batch_of(prefix, merged=True):
    return SimpleNamespace(
        attn_attend_prefix_cache=prefix, mha_return_lse=merged, prefix_chunk_idx=1, extend_seq_lens=torch.tensor(NEW),
        prefix_chunk_cu_seq_lens=[None, cumulative(CHUNK)],
    )  # fmt: skip


def part(prefix):
    draw = torch.Generator().manual_seed(int(prefix))
    q, k = (torch.randn(sum(lens), HEADS, D, generator=draw) for lens in (NEW, CHUNK if prefix else NEW))
    return q, k, ragged(math.e, CHUNK if prefix else NEW, not prefix).run(q, k, k, return_lse=True)[1]


@pytest.mark.parametrize("by_keyword", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("bases", [(2, 2), (2, math.e), (math.e, 2), (math.e, math.e)])
def test_both_parts_are_natural_whatever_each_kernel_returns(bases, kind, by_keyword):
    state = FixState(FIX)
    state.settle(INSTALLED, "for a test")
    function = one_call.wrapper(TARGETS[kind], Backend.engines, state).function
    backend = type("Backend", (Backend,), {"forward": function})(*bases)
    for _ in range(2):
        for prefix in (False, True):
            q, k, right = part(prefix)
            given = {"q": q, "k": k, "v": k, "layer": LAYER, "forward_batch": batch_of(prefix)}
            _, lse = backend.forward(**given) if by_keyword else backend.forward(*given.values())
            torch.testing.assert_close(lse, right)
    assert state.counters.corrections == 2 * bases.count(2) and state.counters.calls == 4 and state.armed
    assert [path[-1] for path in state.observations] == ["new tokens", "prefix"]


@pytest.mark.parametrize("kind", TARGETS)
def test_a_call_that_merges_nothing_is_not_looked_at(kind):
    state = FixState(FIX)
    state.settle(INSTALLED, "for a test")

    def engines(self, q, k, v, layer, forward_batch):
        return "out"

    given = Backend(2, 2), "q", "k", "v", LAYER, batch_of(False, merged=False)
    with NoSync():
        assert one_call.run(TARGETS[kind], engines, state, *given) == "out"
    assert not state.observations


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
