"""vllm.skipped-layer-scales without an engine, and on layers that the engine builds and loads: who is corrected, and how often.

Each error is relative, of one step of the layer's backend against float64. Queries, keys and values have scales of 0.7, 0.3 and
1.7, no powers of two.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.skipped_layer_scales import wrap
from attnfix.patches.vllm.skipped_layer_scales.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "process_weights_after_loading")


class Method:
    """The engine's, of compressed-tensors: it takes what was loaded."""

    def process_weights_after_loading(self, layer):
        layer.taken = {name: getattr(layer, name) for name in wrap.LOADED if hasattr(layer, name)}
        if not layer.taken:
            raise AttributeError("k_scale")


@pytest.fixture(autouse=True)
def base(monkeypatch):
    engine = SimpleNamespace(is_quantized_kv_cache=lambda dtype: dtype.startswith("fp8"))
    monkeypatch.setitem(__import__("sys").modules, wrap._BASE, engine)


def layer(dtype, backend="FLASHINFER", **scales):
    loaded = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in scales.items()}
    return SimpleNamespace(kv_cache_dtype=dtype, attn_backend=SimpleNamespace(get_name=lambda: backend), **loaded)


def run(given):
    """The scales that the engine took, and how many corrections were counted."""
    state = FixState(FIX)
    one_call.run(TARGET, Method.process_weights_after_loading, state, Method(), layer=given)
    return {name: scale.tolist() for name, scale in given.taken.items()}, state.counters.corrections


ALL = {"k_scale": [0.3], "v_scale": [1.7], "q_scale": [0.7]}
ONES = {name: [1.0] for name in ALL}


@pytest.mark.parametrize("dtype", ("auto", "bfloat16", "float16"))
def test_a_layer_that_is_not_quantised_has_no_scales(dtype):
    assert run(layer(dtype, **ALL)) == (ONES, 1)


def test_nor_has_it_scales_of_heads():
    assert run(layer("auto", k_scale=[0.3, 1.0], v_scale=[1.0, 1.0])) == ({"k_scale": [1.0, 1.0], "v_scale": [1.0, 1.0]}, 1)


def test_a_quantised_layer_keeps_them():
    taken, corrections = run(layer("fp8", **ALL))
    assert taken == {name: pytest.approx(value) for name, value in ALL.items()} and not corrections


@pytest.mark.parametrize("backend", ("FLASH_ATTN", "TRITON_ATTN", "CPU_ATTN"))
def test_backends_that_do_not_multiply_keep_them(backend):
    taken, corrections = run(layer("auto", backend, **ALL))
    assert taken == {name: pytest.approx(value) for name, value in ALL.items()} and not corrections


def test_scales_of_1_are_no_correction():
    assert run(layer("auto", **ONES)) == (ONES, 0)


def test_what_is_loaded_anew_is_corrected_anew_in_its_place():
    given = layer("auto", **ALL)
    parameter, held = given.k_scale, given.k_scale.data_ptr()
    run(given)
    parameter.data.fill_(0.3)
    assert run(given) == (ONES, 1) and given.taken["k_scale"] is parameter and parameter.data_ptr() == held


def test_the_engines_error_is_the_engines():
    with pytest.raises(AttributeError, match="k_scale"):
        run(layer("auto"))


PREAMBLE = """
import hashlib, torch
from attnfix.patches.lab.vllm.calibrated import FLASHINFER, SCHEME, CalibratedWorker, running
from attnfix.patches.lab.proof import replaced
from attnfix.patches.vllm.skipped_layer_scales import wrap
SCALES = {"q_scale": 0.7, "k_scale": 0.3, "v_scale": 1.7}
BATCHES = {"decode": ((20, 3), (1, 1)), "prefill": ((20, 0), (5, 9))}
cases = {}

def see(name, worker, layer):
    for which, batch in BATCHES.items():
        out, reference = worker.step(layer, *batch)
        numbers = [getattr(layer, f"_{name}_scale_float") for name in "qkv"]
        held = [getattr(layer, f"_{name}_scale").flatten().tolist() for name in "qkv"]
        cases[f"{name} {which}"] = {"error": float((out.double() - reference).norm() / reference.norm()),
            "bits": hashlib.sha256(out.view(torch.uint8).numpy().tobytes()).hexdigest(), "scales": [numbers, held]}

def run(name, scales=SCALES, index=0, scheme=SCHEME, **more):
    with CalibratedWorker(FLASHINFER, scheme=scheme, layout="HND", **more) as worker:
        layer = worker.loaded(scales, index)
        see(name, worker, layer)
        return layer

with running():
    run("skipped", skip_layers=["0"])
    run("beside it", {"k_scale": 0.3, "v_scale": 1.7}, 1, skip_layers=["0"])
    run("not calibrated", {}, skip_layers=["0"])
    run("explicit", kv_cache_dtype="bfloat16")
    run("explicit, fp8", {"k_scale": 0.3, "v_scale": 1.7}, kv_cache_dtype="fp8_e4m3")
    run("without a scheme", scheme=None)
    with CalibratedWorker(FLASHINFER, scheme=SCHEME, layout="HND", skip_layers=["0"]) as worker:
        layer = worker.loaded(SCALES, 0)
        layer.quant_method.create_weights(layer)  # as `_reload_attention_scales` does
        for name, value in SCALES.items():
            getattr(layer, name).data.fill_(value)
        layer.quant_method.process_weights_after_loading(layer)
        see("loaded anew", worker, layer)
    with replaced(wrap, "LOADED", ("k_scale", "v_scale")):  # on the stock side nothing changes by it
        run("sabotaged", skip_layers=["0"])
answer(cases)
"""

RIGHT, QUANTISED, WRONG = 0.005, 0.06, 0.1
BATCHES = "decode", "prefill"


@pytest.fixture(scope="module")
def sides(engine_fork):
    """sides(release) -> (stock, fixed): name of a case -> what was seen."""
    seen: dict = {}

    def get(release):
        if release not in seen:
            fork = engine_fork("vllm", release)
            seen[release] = [fork.evaluate(PREAMBLE, **side) for side in ({"ATTNFIX": "0"}, ALONE)]
        return seen[release]

    return get


#: Its sibling corrects a query's scale wherever the query is not FP8
ALONE = {FIX.switch: "1", "ATTNFIX_VLLM_FLASHINFER_Q_SCALE": "0"}
RELEASES = pytest.mark.parametrize("release", ("0.22.0", "0.33.0"))


@RELEASES
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", ("skipped", "explicit", "without a scheme", "loaded anew"))
def test_what_is_not_quantised_is_not_multiplied(sides, release, case, batch):
    stock, fixed = (side[f"{case} {batch}"] for side in sides(release))
    assert stock["error"] > WRONG and fixed["error"] < RIGHT
    assert fixed["scales"] == [[1.0] * 3, [[1.0]] * 3]


@RELEASES
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", ("beside it", "explicit, fp8", "not calibrated"))
def test_what_stock_does_right_stays_as_it_is(sides, release, case, batch):
    stock, fixed = (side[f"{case} {batch}"] for side in sides(release))
    assert stock["error"] < QUANTISED and fixed == stock


@pytest.mark.parametrize("batch", BATCHES)
def test_from_0_25_a_query_of_this_layer_must_have_no_scale_either(sides, batch):
    assert sides("0.33.0")[1][f"sabotaged {batch}"]["error"] > WRONG
    assert sides("0.22.0")[1][f"sabotaged {batch}"]["error"] < RIGHT
