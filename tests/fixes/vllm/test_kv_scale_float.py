"""vllm.kv-scale-float: which layers get their numbers without an engine, and on layers that the engine builds and loads.

Each error is relative, of one step of the layer's backend against float64; FP8 and bfloat16 leave 0.04. Queries, keys and
values have scales of 0.7, 0.3 and 1.7, no powers of two.
"""

from __future__ import annotations

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.kv_scale_float import wrap
from attnfix.patches.vllm.kv_scale_float.fix import FIX
from tests.support import one_call

QUANTISED, AS_IT_IS = object(), None
COPIED, ONE = 2.0, 1.0


def layer_of(module, *, query=QUANTISED, cache="fp8"):
    layer = torch.nn.Module()
    layer.impl = type("Impl", (), {"__module__": module})()
    layer.kv_cache_dtype, layer.query_quant = cache, query
    for name in ("q", "k", "v"):
        setattr(layer, f"_{name}_scale_float", ONE)
    return layer


def run(name, function, *args):
    """(what the caller gets, corrections) of one call of the engine's function with that name."""
    state = FixState(FIX)
    state.fired = True
    return one_call.run(one_call.target_of(FIX, name), function, state, *args), state.counters.corrections


def load(layer, k_scale=COPIED, others=COPIED):
    """(numbers after loading, corrections) where the engine sets these tensors."""

    def engine(self, layer):
        for name in ("q", "v"):
            layer.register_buffer(f"_{name}_scale", torch.tensor(others))
        layer.register_buffer("_k_scale", torch.tensor(k_scale))
        return "the engine's"

    result, corrections = run("process_weights_after_loading", engine, object(), layer)
    assert result == "the engine's"
    return tuple(getattr(layer, f"_{name}_scale_float") for name in ("q", "k", "v")), corrections


@pytest.mark.parametrize("module", [wrap.FLASHINFER, wrap.AITER])
def test_a_backend_that_multiplies_by_numbers_gets_them(module):
    assert load(layer_of(module), 0.25) == ((COPIED, 0.25, COPIED), 1)


def test_of_a_scale_for_each_head_the_largest():
    assert load(layer_of(wrap.FLASHINFER), [0.25, 0.5])[0] == (COPIED, 0.5, COPIED)


@pytest.mark.parametrize("name", ["triton_attn", "rocm_attn", "mla.cutlass_mla", "mla.flashinfer_mla", "flash_attn"])
def test_a_backend_that_reads_tensors_or_refuses_is_left_alone(name):
    assert load(layer_of(f"vllm.v1.attention.backends.{name}"), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_backend_of_somebody_else_with_that_name_is_left_alone():
    assert load(layer_of("somewhere.flashinfer"), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_layer_without_a_backend_is_left_alone():
    layer = layer_of(wrap.FLASHINFER)
    del layer.impl
    assert load(layer, 0.25) == ((ONE, ONE, ONE), 0)


@pytest.mark.parametrize("cache", ["auto", "bfloat16", "fp8_ds_mla", "fp8_e5m2", "nvfp4"])
def test_a_cache_that_is_not_divided_by_the_scales_keeps_the_numbers(cache):
    assert load(layer_of(wrap.FLASHINFER, cache=cache), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_query_that_is_not_quantised_keeps_its_number():
    assert load(layer_of(wrap.FLASHINFER, query=AS_IT_IS), 0.25) == ((ONE, 0.25, COPIED), 1)


def test_aiter_takes_the_tensors_where_queries_are_not_quantised():
    assert load(layer_of(wrap.AITER, query=AS_IT_IS), 0.25) == ((ONE, ONE, ONE), 0)


@pytest.mark.parametrize("query", [QUANTISED, AS_IT_IS])
def test_numbers_that_are_right_are_no_correction(query):
    layer = layer_of(wrap.FLASHINFER, query=query)
    assert load(layer, ONE, ONE) == ((ONE, ONE, ONE), 0)
    assert not hasattr(layer._k_scale, wrap.IN_NUMBER)


def test_want_of_memory_while_a_model_is_loaded_leaves_no_layer_behind_the_others(monkeypatch):
    """With the first layer corrected and the others not, the pages of the first would be multiplied twice."""
    state, scales = FixState(FIX), torch.tensor(COPIED)

    def process_weights_after_loading(self, layer):
        layer._q_scale = layer._k_scale = layer._v_scale = scales

    target = one_call.target_of(FIX, "process_weights_after_loading")
    load_one = one_call.wrapper(target, process_weights_after_loading, state).function
    first, second = layer_of(wrap.FLASHINFER), layer_of(wrap.FLASHINFER)
    load_one(object(), first)
    monkeypatch.setattr(wrap, "largest", lambda scale: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        load_one(object(), second)
    assert state.armed and first._k_scale_float == COPIED


def dequantised(k_scale, v_scale):
    """(scales that the engine's function gets, corrections)."""

    def engine(kv_cache, block_tables_prefill, k_scale, v_scale, dequant_dtype):
        return kv_cache, block_tables_prefill, k_scale, v_scale, dequant_dtype

    given = "cache", "tables", k_scale, v_scale, torch.bfloat16
    result, corrections = run("trtllm_prefill_attn_kvfp8_dequant", engine, *given)
    assert (result[:2], result[4]) == (given[:2], given[4])
    return [float(scale) for scale in result[2:4]], corrections


def test_pages_are_copied_as_they_are_where_the_numbers_say_the_scales():
    layer = layer_of(wrap.FLASHINFER, query=AS_IT_IS)
    load(layer, 0.25)
    assert dequantised(layer._k_scale, layer._v_scale) == ([1.0, 1.0], 1)


def test_a_reloaded_layer_whose_numbers_were_right_already_has_its_pages_copied_too():
    layer = layer_of(wrap.FLASHINFER, query=AS_IT_IS)
    load(layer, 0.25)
    load(layer, 0.25)  # new tensors
    assert dequantised(layer._k_scale, layer._v_scale) == ([1.0, 1.0], 1)


def test_pages_of_other_layers_are_dequantised_by_the_engine():
    layer = layer_of(wrap.FLASHINFER)
    load(layer, 0.25)
    assert dequantised(layer._k_scale, layer._v_scale) == ([0.25, COPIED], 0)


PREAMBLE = """
import hashlib
from types import SimpleNamespace
from attnfix.patches.lab.vllm.calibrated import AITER, FLASHINFER, SCHEME, CalibratedWorker, running
from attnfix.patches.lab.vllm.construction import MLA
from attnfix.patches.lab.proof import replaced
from attnfix.patches.vllm.kv_scale_float import wrap
from vllm.config import CacheConfig
SCALES = {"q_scale": 0.7, "k_scale": 0.3, "v_scale": 1.7}
DECODE, PREFILL = ((20, 3), (1, 1)), ((20, 0), (5, 9))
cases = {}

def see(name, worker, layer, batch=PREFILL, **more):
    try:
        out, reference = worker.step(layer, *batch, **more)
    except AssertionError as error:
        cases[name] = {"raised": str(error)}
        return
    raw = out.view(__import__("torch").uint8).numpy().tobytes()
    numbers = [getattr(layer, f"_{name}_scale_float") for name in "qkv"]
    cases[name] = {"error": float((out.double() - reference).norm() / reference.norm()),
                   "bits": hashlib.sha256(raw).hexdigest(), "numbers": numbers}

def slept(name, backend, **more):
    "After the worker's own method, and the runner's that it calls. Neither can be constructed here: these are what they read."
    from vllm.device_allocator import cumem
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.gpu_worker import Worker
    memory = SimpleNamespace(get_instance=lambda: SimpleNamespace(wake_up=lambda tags: None))
    with CalibratedWorker(backend, scheme=SCHEME, **more) as worker, replaced(cumem, "CuMemAllocator", memory):
        layer, config = worker.loaded(SCALES), worker.config
        see(name + ", before", worker, layer)
        runner = SimpleNamespace(cache_config=config.cache_config, compilation_config=config.compilation_config, kv_caches=[])
        runner.init_fp8_kv_scales = lambda: GPUModelRunner.init_fp8_kv_scales(runner)
        awake = SimpleNamespace(vllm_config=config, cache_config=config.cache_config, model_runner=runner)
        awake._sleep_saved_buffers = {}
        held = layer._k_scale.data_ptr()
        Worker.wake_up(awake)
        assert layer._k_scale.data_ptr() == held  # CUDA graphs hold it
        see(name, worker, layer)

def run(name, backend, scales=SCALES, batches={"": PREFILL}, **more):
    with CalibratedWorker(backend, **more) as worker:
        layer = worker.loaded(scales)
        for which, batch in batches.items():
            see(name + which, worker, layer, batch)
"""

#: 0.15.0-0.19.1: checkpoints of llm-compressor
CALIBRATED = """
BOTH = {" decode": DECODE, " prefill": PREFILL}
AS_THEY_ARE = {"disable_flashinfer_q_quantization": True}
with running():
    run("hopper", FLASHINFER, scheme=SCHEME)
    run("not calibrated", FLASHINFER, {}, scheme=SCHEME)
    run("blackwell", FLASHINFER, batches=BOTH, scheme=SCHEME, trtllm=True)
    run("bf16 queries", FLASHINFER, batches=BOTH, scheme=SCHEME, trtllm=True, attention=AS_THEY_ARE)
    forced = {**AS_THEY_ARE, "use_trtllm_attention": True}
    run("bf16 queries, TRT-LLM", FLASHINFER, batches=BOTH, scheme=SCHEME, trtllm=True, attention=forced)
    run("bf16 queries, TRT-LLM, not calibrated", FLASHINFER, {}, BOTH, scheme=SCHEME, trtllm=True, attention=forced)
    run("aiter", AITER, scheme=SCHEME)
    slept("slept", FLASHINFER)
    slept("slept, blackwell", FLASHINFER, trtllm=True)
    slept("slept, bf16 queries, TRT-LLM", FLASHINFER, trtllm=True, attention=forced)
    # --hf-overrides takes the scheme away, the checkpoint keeps its scales: a bfloat16 cache
    run("bf16 cache", FLASHINFER, scheme=None)
    for backend in "cutlass_mla.CutlassMLABackend", "flashinfer_mla.FlashInferMLABackend":
        with CalibratedWorker("mla." + backend, scheme=SCHEME, model=MLA, kv_cache_dtype="fp8", trtllm=True) as worker:
            layer = worker.loaded(SCALES)
            loaded = [float(getattr(layer, f"_{name}_scale{kind}")) for name in "qkv" for kind in ("", "_float")]
            cases[backend] = {"numbers": loaded, "method": type(getattr(layer, "quant_method", None)).__name__}
    # Its builder of 0.19 plans an FP8 cache for skipped layers too, which FlashInfer refuses: here, one that plans bfloat16
    def skipping(name):
        with CalibratedWorker(FLASHINFER) as plain:
            builder = plain.builder([plain.layer()])
        with CalibratedWorker(FLASHINFER, scheme=SCHEME, skip_layers=["0"]) as worker:
            skipped, quantised = worker.loaded(SCALES, 0), worker.loaded(SCALES, 1)
            see(name, worker, skipped, builder=builder)
            see(name + ", beside it", worker, quantised)

    if "kv_cache_dtype_skip_layers" in CacheConfig.__dataclass_fields__:
        skipping("skipped")
    # Sabotages: the corrections as they were. On the stock side nothing changes by them
    with replaced(wrap, "quantises_query", lambda layer: True):
        run("sabotaged aiter", AITER, scheme=SCHEME)
        run("sabotaged bf16 queries", FLASHINFER, batches={"": DECODE}, scheme=SCHEME, trtllm=True, attention=AS_THEY_ARE)
    with replaced(wrap, "QUANTISED", wrap.QUANTISED | {"auto"}):
        run("sabotaged bf16 cache", FLASHINFER, scheme=None)
        if "skipped" in cases:
            skipping("sabotaged skipped")
    wrap.setattr = lambda *mark: None
    run("sabotaged TRT-LLM prefill", FLASHINFER, scheme=SCHEME, trtllm=True, attention=forced)
answer(cases)
"""

#: 0.10.2: any FP8 checkpoint
QUERY = """
import os
FP8 = {"quant_method": "fp8", "activation_scheme": "static"}
BOTH = {" decode": DECODE, " prefill": PREFILL}
with running():
    run("blackwell", FLASHINFER, batches=BOTH, quantization=FP8, kv_cache_dtype="fp8", trtllm=True)
    run("hopper", FLASHINFER, quantization=FP8, kv_cache_dtype="fp8")
    run("bf16 cache", FLASHINFER, batches=BOTH, quantization=FP8, trtllm=True)
    os.environ.update(VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION="1", VLLM_USE_TRTLLM_ATTENTION="1")
    from vllm.utils import flashinfer
    flashinfer.flashinfer_disable_q_quantization.cache_clear()
    run("bf16 queries", FLASHINFER, batches={" decode": DECODE}, quantization=FP8, kv_cache_dtype="fp8", trtllm=True)
answer(cases)
"""

RIGHT, WRONG = 0.06, 0.15


@pytest.fixture(scope="module")
def sides(engine_fork):
    """sides(release, code) -> (stock, fixed): name of a case -> what was seen."""
    seen: dict = {}

    def get(release, code):
        if (release, code) not in seen:
            fork = engine_fork("vllm", release)
            seen[release, code] = [fork.evaluate(PREAMBLE + code, **side) for side in ({"ATTNFIX": "0"}, {})]
        return seen[release, code]

    return get


def corrected(case, stock, fixed):
    assert stock[case]["error"] > WRONG, (case, stock[case])
    assert fixed[case].get("error", 9) < RIGHT, (case, fixed[case])


def the_same(case, stock, fixed):
    assert stock[case]["error"] < RIGHT, (case, stock[case])
    assert fixed[case] == stock[case], case


RELEASES = ["0.15.0", "0.18.1", "0.19.1"]


@pytest.mark.parametrize("release", RELEASES)
def test_flashinfer_reads_what_was_written(sides, release):
    both = sides(release, CALIBRATED)
    for case in "hopper", "blackwell decode", "blackwell prefill":
        corrected(case, *both)
    the_same("not calibrated", *both)


@pytest.mark.parametrize("release", RELEASES)
def test_aiter_serves_where_stock_does(sides, release):
    """A1: up to 0.18.1 it reads the tensors and asserts that the query's number is 1; from 0.19.0 it multiplies."""
    (corrected if release == "0.19.1" else the_same)("aiter", *sides(release, CALIBRATED))


@pytest.mark.parametrize("release", RELEASES)
def test_a_cache_that_is_not_quantised_has_no_scales(sides, release):
    """A2, without --kv-cache-dtype-skip-layers: the scheme overridden, the scales in the checkpoint."""
    the_same("bf16 cache", *sides(release, CALIBRATED))


def test_a_skipped_layer_has_no_scales_and_the_next_one_has(sides):
    """A2."""
    both = sides("0.19.1", CALIBRATED)
    the_same("skipped", *both)
    corrected("skipped, beside it", *both)


@pytest.mark.parametrize("release", RELEASES)
def test_queries_that_are_not_quantised_are_not_multiplied(sides, release):
    """With disable_flashinfer_q_quantization: decode multiplies by the numbers alone, prefill by what it is handed."""
    both = sides(release, CALIBRATED)
    for case in "bf16 queries decode", "bf16 queries prefill", "bf16 queries, TRT-LLM decode":
        corrected(case, *both)


@pytest.mark.parametrize("release", RELEASES)
def test_trtllm_prefill_is_not_multiplied_twice(sides, release):
    """It reads pages that were multiplied by the tensors, and then by the numbers: right in stock, where these are 1."""
    stock, fixed = sides(release, CALIBRATED)
    assert stock["bf16 queries, TRT-LLM prefill"]["error"] < RIGHT
    assert fixed["bf16 queries, TRT-LLM prefill"]["error"] < RIGHT
    for which in "decode", "prefill":
        the_same(f"bf16 queries, TRT-LLM, not calibrated {which}", stock, fixed)


@pytest.mark.parametrize("release", RELEASES)
def test_a_server_that_has_slept_reads_what_it_writes(sides, release):
    """Woken, the engine writes by scales of 1, and so stock is right; the numbers, and what graphs hold, stay calibrated."""
    stock, fixed = sides(release, CALIBRATED)
    assert stock["slept"]["error"] < RIGHT
    for case in "slept", "slept, blackwell", "slept, bf16 queries, TRT-LLM":
        assert fixed[case]["error"] < RIGHT, (case, fixed[case])
        assert fixed[case] == fixed[f"{case}, before"], case


@pytest.mark.parametrize("release", RELEASES)
def test_no_mla_layer_loads_scales_so_none_is_read_wrongly(sides, release):
    """So CUTLASS_MLA is right, which takes neither tensors nor numbers, and FLASHINFER_MLA, which multiplies by numbers."""
    for side in sides(release, CALIBRATED):
        for backend in "cutlass_mla.CutlassMLABackend", "flashinfer_mla.FlashInferMLABackend":
            assert side[backend] == {"numbers": [1.0] * 6, "method": "NoneType"}


@pytest.mark.parametrize("release", RELEASES)
def test_the_corrections_as_they_were_are_seen(sides, release):
    """Without what keeps A1 and A2 away, and without what keeps prefill from being multiplied twice, each case is red."""
    stock, fixed = sides(release, CALIBRATED)
    if release != "0.19.1":
        assert fixed["sabotaged aiter"] == {"raised": "A non 1.0 q_scale is not currently supported."}
        assert stock["sabotaged aiter"]["error"] < RIGHT
    wrong = ["sabotaged bf16 cache", "sabotaged bf16 queries", "sabotaged TRT-LLM prefill"]
    for case in wrong + ["sabotaged skipped"] * ("skipped" in fixed):
        assert fixed[case]["error"] > WRONG, case


def test_the_query_scale_of_0_10_2(sides):
    both = sides("0.10.2", QUERY)
    corrected("blackwell decode", *both)
    corrected("blackwell prefill", *both)
    for case in "hopper", "bf16 cache decode", "bf16 cache prefill", "bf16 queries decode":
        the_same(case, *both)
