"""sglang.hybrid-chunk-metadata on real releases: which backends behind a hybrid one get a plan, and how often it is counted."""

from __future__ import annotations

import pytest

#: The bits that the model gets, what FlashInfer planned for them, and how often the fix counted. Real: the model's methods, the
#: hybrid backends by their own constructors, the backends that attend. FlashInfer's and TRT-LLM's kernels are emulated
HEAD = """
from attnfix.prove import side
side._ease_engine("sglang")
import math
import attnfix
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.sglang.chunked_prefix import FLASHINFER, TRTLLM
from attnfix.patches.sglang.hybrid_chunk_metadata.proof import _LINEAR, Proof

it, plans = Proof(), []
it.prepare()
real = emulators.RaggedWrapper.begin_forward

def begin_forward(self, *args, **kwargs):
    plans.append(1)
    return real(self, *args, **kwargs)

emulators.RaggedWrapper.begin_forward = begin_forward

def corrections():
    rows = [row for row in attnfix.status() if row["fix"] == "sglang.hybrid-chunk-metadata"]
    return sum(row["counters"]["corrections"] for row in rows)

def prefill(hybrid, module=TRTLLM, kind=None):
    def behind(backend, batch):
        if kind is not None:
            backend.__class__ = kind(type(backend))
        return hybrid(backend, batch)

    it.use(math.e)
    plans.clear()
    before = corrections()
    try:
        one = observe(*it.outputs(3, [35, 33, 40, 36], [3, 5, 2, 6], module, behind=behind))
        found = [one.error < 0.02, one.bits]
    except (IndexError, AttributeError, TypeError) as error:  # no wrapper, none planned, or an engine's own wrong call
        found = [False, str(error)]
    return [*found, len(plans), corrections() - before]

def nested(backend, batch):
    inner = it._with_linear(backend, batch)
    if not hasattr(type(inner), "data_type"):  # later releases hand it on by themselves
        inner.data_type = backend.data_type
    return it._split(inner, batch)

hybrids = {"split": it._split}
if _LINEAR in it.engine:
    hybrids |= {"linear": it._with_linear, "nested": nested}
"""
OWN_KERNEL = """
def heir(kind):
    return type("TokenspeedMLABackend", (kind,), {})

answer({name: prefill(hybrid, kind=kind) for name, hybrid in hybrids.items() for kind in (None, heir)})
"""
FLASHINFERS = """
answer({name: prefill(hybrid, FLASHINFER) for name, hybrid in hybrids.items()})
"""
NO_MODULE = """
real_plan = emulators.RaggedWrapper.begin_forward

def begin_forward(self, *args, **kwargs):
    raise RuntimeError("Ninja is not installed")

emulators.RaggedWrapper.begin_forward = begin_forward
row = lambda: next(row for row in attnfix.status() if row["fix"] == "sglang.hybrid-chunk-metadata")
prefill(it._split, FLASHINFER)
answer([row()["state"], "Ninja" in row()["reason"], row()["counters"]["corrections"]])
"""
ALONE = {"ATTNFIX_SGLANG_ZERO_KV_ROWS": "0", "ATTNFIX_SGLANG_LSE_LOG_BASE": "0"}
AFFECTED = ["0.5.3", "0.5.8", "0.5.12.post1", "0.5.13", "0.5.16"]


@pytest.mark.parametrize("release", AFFECTED)
def test_a_backend_that_attends_by_its_own_kernel_is_left_alone(engine_fork, release):
    """trtllm_mla and its heirs: right without a plan of FlashInfer's."""
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(HEAD + OWN_KERNEL, **ALONE, ATTNFIX="0")
    assert all(right and not plans for name, (right, _, plans, _) in stock.items() if name == "split")
    assert environment.evaluate(HEAD + OWN_KERNEL, **ALONE) == stock


@pytest.mark.parametrize("release", AFFECTED)
def test_a_plan_that_stock_lacks_is_counted_once(engine_fork, release):
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(HEAD + FLASHINFERS, **ALONE, ATTNFIX="0")
    found = environment.evaluate(HEAD + FLASHINFERS, **ALONE)
    assert all(right for right, *_ in found.values())
    for name, (_, _, plans, counted) in found.items():
        assert plans > 1 and counted == (0 if stock[name][0] else 1), name
    assert not stock["split"][0] and found["split"][-1] == 1


def test_a_plan_that_cannot_be_made_gives_the_fix_up(engine_fork):
    """Stock goes on without a plan, and so does the engine then; the reason is told."""
    found = engine_fork("sglang", "0.5.12.post1").evaluate(HEAD + NO_MODULE, **ALONE)
    assert found == ["failed", True, 0]
