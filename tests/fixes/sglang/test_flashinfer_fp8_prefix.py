"""sglang.flashinfer-fp8-prefix on real releases, by kind of cache and of prefill, and on one call by itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.flashinfer_fp8_prefix.fix import FIX
from tests.support import one_call

#: Steps of the proof's requests in one process: their errors, and how often the fix has corrected
STEPS = """
from attnfix import status
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
import torch
from attnfix.patches.sglang.flashinfer_fp8_prefix import proof

def errors(dtype, scales, **attributes):
    run = proof.Prefill(made.engine, torch.Generator().manual_seed(3), dtype, scales)
    vars(run.backend).update(attributes)
    return [run.step([5, 1, 9, 3]).error for _ in range(3)]

made = proof.Proof()
made.prepare()
corrections = lambda: next(row["counters"]["corrections"] for row in status() if row["fix"] == "sglang.flashinfer-fp8-prefix")
"""
CASES = """
found = {
    "e4m3": errors(torch.float8_e4m3fn, (0.04, 0.25)), "e5m2": errors(torch.float8_e5m2, (0.04, 0.25)),
    "keys alone": errors(torch.float8_e4m3fn, (0.04, 1.0)),
}
before = corrections()
found |= {
    "16 bits": errors(torch.float16, (0.04, 0.25)), "no scales": errors(torch.float8_e4m3fn, None),
    "deterministic": errors(torch.float8_e4m3fn, (0.04, 0.25), enable_deterministic=True),
    "vision": errors(torch.float8_e4m3fn, (0.04, 0.25), is_multimodal=True),
}
answer([found, before, corrections() - before])
"""
#: What the fix is not for: these are right as the engine has them
LEFT = ("16 bits", "no scales")


@pytest.mark.parametrize("release", ["0.5.9", "0.5.17"])
def test_every_kind_of_cache(engine_fork, release):
    environment = engine_fork("sglang", release)
    stock, *_ = environment.evaluate(STEPS + CASES, ATTNFIX="0")
    fixed, corrected, elsewhere = environment.evaluate(STEPS + CASES)
    for name in ("e4m3", "e5m2", "keys alone"):
        first, *later = stock[name]
        assert first < 0.01 and min(later) > 0.2, f"{name}: stock is wrong behind a prefix alone"
        assert max(fixed[name]) < 0.01, name
    assert corrected == 6 and elsewhere == 0
    for name in LEFT:
        assert fixed[name] == stock[name] and max(stock[name]) < 0.01, name
    for name in ("deterministic", "vision"):
        assert fixed[name] == stock[name], f"{name}: paged prefill has its scales from the engine"


class Wrapper:
    def forward_return_lse(self, q, **options):
        self.options = options
        return q


class Backend:
    def __init__(self, data_type="torch.float8_e4m3fn", error=None, **attributes):
        self.wrapper, self.error = Wrapper(), error
        self.forward_metadata = SimpleNamespace(prefill_wrappers=[self.wrapper], use_ragged=True, extend_no_prefix=False)
        self.indices_updater_prefill = SimpleNamespace(data_type=data_type)
        vars(self).update(attributes)

    def _get_wrapper_idx(self, layer):
        return 0

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        result = self.forward_metadata.prefill_wrappers[0].forward_return_lse(q, causal=False)
        if self.error:
            raise self.error
        return result


def call(backend, k_scale=0.5, v_scale=0.25):
    """(the options that FlashInfer saw, the fix's state) of a layer with these scales."""
    state, layer = FixState(FIX), SimpleNamespace(k_scale_float=k_scale, v_scale_float=v_scale)
    target = one_call.target_of(FIX, "forward_extend")
    assert one_call.run(target, Backend.forward_extend, state, backend, "q", "k", "v", layer, None) == "q"
    return backend.wrapper.options, state


def test_the_scales_are_given_and_the_wrapper_is_as_it_was():
    backend = Backend()
    found, state = call(backend)
    assert found == {"causal": False, "k_scale": 0.5, "v_scale": 0.25} and state.counters.corrections == 1
    assert "forward_return_lse" not in vars(backend.wrapper)


def test_a_scale_that_the_layer_lacks_is_left_out():
    assert call(Backend(), v_scale=None)[0] == {"causal": False, "k_scale": 0.5}


@pytest.mark.parametrize(
    "backend, scales",
    [
        (Backend(), (None, None)),
        (Backend(), (1.0, 1.0)),
        (Backend("torch.bfloat16"), (0.5, 0.25)),
        (Backend(prefill_uses_dequant_workspace=True), (0.5, 0.25)),  # an FP4 cache, unpacked to FP8
    ],
)
def test_others_pass_untouched(backend, scales):
    found, state = call(backend, *scales)
    assert found == {"causal": False} and not state.counters.corrections


def test_an_error_of_the_engine_passes_and_the_wrapper_is_as_it_was():
    backend = Backend(error=MemoryError())
    with pytest.raises(MemoryError):
        call(backend)
    assert "forward_return_lse" not in vars(backend.wrapper)
