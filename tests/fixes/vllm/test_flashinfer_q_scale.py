"""vllm.flashinfer-q-scale: corrected launches without an engine, and on layers that the engine builds and loads.

Each error is relative, of one step of the layer's backend against float64. Queries, keys and values have scales 0.5, 0.25 and
2, and values that FP8 holds: nothing is lost.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.flashinfer_q_scale.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "forward")
FP8 = torch.float8_e4m3fn
Q, K, SCALE = 0.5, 0.3, 0.125


class Wrapper:
    """FlashInfer's: keeps what it is handed."""

    _sm_scale = SCALE

    def run(self, query, kv_cache, *more, **options):
        self.handed = query.dtype, more, options


class SinkWrapper(Wrapper): ...


class RanksWrapper(Wrapper):
    """The engine's own, of prefills of several ranks."""

    def run(self, layer, query, kv_cache, key, value, out):
        self.handed = layer, query.dtype


@dataclass
class Native:
    wrapper: Any


class Trtllm: ...


@dataclass
class Metadata:
    q_data_type_prefill: Any
    q_data_type_decode: Any
    prefill: Any = None
    decode: Any = None


class Layer:
    _q_scale_float, _k_scale_float, _v_scale_float = Q, K, 2.0


class Impl:
    """The engine's, as far as scales go: rows 0 and 1 are decodes, the others prefills."""

    scale, dcp_world_size, nvfp4 = SCALE, 1, False

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        if attn_metadata is None:
            return output
        self.layer, self.bmm1_scale = layer, self.scale * layer._q_scale_float * layer._k_scale_float
        q_scale = 1.0 if self.nvfp4 else layer._q_scale_float
        if isinstance(attn_metadata.prefill, Native):
            wrapper, rows = attn_metadata.prefill.wrapper, query[2:].to(attn_metadata.q_data_type_prefill)
            assert isinstance(wrapper, Wrapper) and wrapper._sm_scale == self.scale
            if self.dcp_world_size > 1:
                wrapper.run(layer, rows, kv_cache, key, value, out=output)
            elif isinstance(wrapper, SinkWrapper):
                wrapper.run(rows, kv_cache, "sinks", self.scale * layer._q_scale_float * layer._k_scale_float, v_scale=2.0)
            else:
                wrapper.run(rows, kv_cache, q_scale=q_scale, k_scale=layer._k_scale_float)
        if isinstance(attn_metadata.decode, Native):
            rows = query[:2].to(attn_metadata.q_data_type_decode)
            attn_metadata.decode.wrapper.run(rows, kv_cache, q_scale=q_scale, k_scale=layer._k_scale_float)
        return output


def run(metadata, *, layer=None, **of_impl):
    """(corrections, rows that were corrected) of one step of five rows."""
    impl, state, query = Impl(), FixState(FIX), torch.zeros(5, 1, 4, dtype=torch.bfloat16)
    vars(impl).update(of_impl)
    layer, output = layer or Layer(), object()
    kept = metadata and replace(metadata)
    got = one_call.run(TARGET, Impl.forward, state, impl, layer, query, None, None, (), metadata, output=output)
    assert got is output and metadata == kept and (metadata is None or impl.layer is layer)
    assert metadata is None or impl.bmm1_scale == SCALE * layer._q_scale_float * K  # TRT-LLM's
    return state.counters.corrections, state.counters.rows


def both(prefill, decode, wrapper=Wrapper):
    return Metadata(prefill, decode, Native(wrapper()), Native(Wrapper()))


def handed(part):
    return part.wrapper.handed


def test_no_query_is_scaled_that_is_not_fp8():
    metadata = both(torch.bfloat16, torch.bfloat16)
    assert run(metadata) == (1, 5)
    for part in (metadata.prefill, metadata.decode):
        assert handed(part) == (torch.bfloat16, (), {"q_scale": 1.0, "k_scale": K})


def test_those_of_fp8_keep_their_scale():
    metadata = both(FP8, FP8)
    assert run(metadata) == (0, 0)
    assert handed(metadata.prefill)[2] == handed(metadata.decode)[2] == {"q_scale": Q, "k_scale": K}


def test_each_part_of_a_step_has_queries_of_its_own():
    metadata = both(FP8, torch.bfloat16)
    assert run(metadata) == (1, 2)
    assert handed(metadata.prefill)[2]["q_scale"] == Q and handed(metadata.decode)[2]["q_scale"] == 1.0


def test_the_wrapper_with_sinks_gets_the_factor_without_it():
    metadata = both(torch.float16, torch.float16, SinkWrapper)
    assert run(metadata) == (1, 5)
    assert handed(metadata.prefill) == (torch.float16, ("sinks", SCALE * 1.0 * K), {"v_scale": 2.0})
    metadata = both(FP8, torch.float16, SinkWrapper)
    assert run(metadata) == (1, 2)
    assert handed(metadata.prefill)[1] == ("sinks", SCALE * Q * K)


def test_prefills_of_several_ranks_are_told_nothing():
    layer, metadata = Layer(), both(torch.bfloat16, torch.bfloat16, RanksWrapper)
    assert run(metadata, layer=layer, dcp_world_size=2) == (1, 2)
    assert handed(metadata.prefill) == (layer, torch.bfloat16) and handed(metadata.decode)[2]["q_scale"] == 1.0


@pytest.mark.parametrize(
    "metadata, of_layer, of_impl",
    [
        (None, {}, {}),
        (both(torch.bfloat16, torch.bfloat16), {"_q_scale_float": 1.0}, {}),
        (both(torch.bfloat16, torch.bfloat16), {}, {"nvfp4": True}),
        (Metadata(torch.bfloat16, torch.bfloat16, Trtllm(), Trtllm()), {}, {}),
        (Metadata(torch.bfloat16, torch.bfloat16), {}, {}),
    ],
    ids=["profiling", "no scale", "NVFP4 is told 1", "TRT-LLM and XQA", "nothing"],
)
def test_nothing_is_corrected(metadata, of_layer, of_impl):
    layer = Layer()
    vars(layer).update(of_layer)
    assert run(metadata, layer=layer, **of_impl) == (0, 0)


def test_the_engines_error_is_the_engines():
    class Refuses(Wrapper):
        def run(self, *query, **options):
            raise ValueError("the plan is another")

    with pytest.raises(ValueError, match="the plan is another"):
        run(both(torch.bfloat16, torch.bfloat16, Refuses))


PREAMBLE = """
import hashlib, torch
from attnfix.compat.status import fix_state
from attnfix.patches.lab.vllm.calibrated import FLASHINFER, SCHEME, CalibratedWorker, running
SCALES = {"q_scale": 0.5, "k_scale": 0.25, "v_scale": 2.0}
BATCHES = {"decode": ((20, 3), (1, 1)), "prefill": ((20, 0), (5, 9)), "both": ((20, 3), (1, 5))}
cases = {}

def run(name, scales=SCALES, index=0, exact=True, **more):
    with CalibratedWorker(FLASHINFER, scheme=SCHEME, layout="HND", **more) as worker:
        layer = worker.loaded(scales, index)
        for which, batch in BATCHES.items():
            out, reference = worker.step(layer, *batch, exact=exact)
            cases[f"{name} {which}"] = {"error": float((out.double() - reference).norm() / reference.norm()),
                "bits": hashlib.sha256(out.view(torch.uint8).numpy().tobytes()).hexdigest()}

with running():
    for name, capability in (("Ampere", (8, 0)), ("Ada", (8, 9)), ("Hopper", (9, 0)), ("RTX 5090", (12, 0))):
        run(name, kv_cache_dtype="fp8", capability=capability)
    run("kept", kv_cache_dtype="fp8", capability=(9, 0), attention={"disable_flashinfer_q_quantization": True})
    run("no scale", {"k_scale": 0.25, "v_scale": 2.0}, kv_cache_dtype="fp8", capability=(8, 9))
    run("skipped", exact=False, skip_layers=["0"], capability=(8, 9))
    run("skipped, of keys and values", {"k_scale": 0.25, "v_scale": 2.0}, exact=False, skip_layers=["0"], capability=(8, 9))
    run("skipped, of queries", {"q_scale": 0.5}, exact=False, skip_layers=["0"], capability=(8, 9))
answer(cases)
"""

RIGHT, WRONG = 0.005, 0.1
DECODE, PREFILL, BOTH = "decode", "prefill", "both"
OTHER = "ATTNFIX_VLLM_SKIPPED_LAYER_SCALES"


@pytest.fixture(scope="module")
def sides(engine_fork):
    """sides(release) -> (stock, fixed, fixed with the sibling): name of a case -> what was seen."""
    seen: dict = {}

    def get(release):
        if release not in seen:
            fork, switches = engine_fork("vllm", release), ({"ATTNFIX": "0"}, {FIX.switch: "1"}, {FIX.switch: "1", OTHER: "1"})
            seen[release] = [fork.evaluate(PREAMBLE, **side) for side in switches]
        return seen[release]

    return get


RELEASES = pytest.mark.parametrize("release", ("0.25.0", "0.33.0"))


@RELEASES
@pytest.mark.parametrize("batch", (DECODE, PREFILL, BOTH))
@pytest.mark.parametrize("case", ("Ampere", "Ada", "RTX 5090", "kept", "skipped, of queries"))
def test_scores_are_not_multiplied(sides, release, case, batch):
    stock, fixed, _ = (side[f"{case} {batch}"] for side in sides(release))
    assert stock["error"] > WRONG and fixed["error"] < RIGHT


@RELEASES
def test_hoppers_prefills_keep_their_bits_and_its_decodes_do_not(sides, release):
    stock, fixed, _ = sides(release)
    assert stock["Hopper prefill"]["error"] < RIGHT and fixed["Hopper prefill"] == stock["Hopper prefill"]
    for batch in (DECODE, BOTH):
        assert stock[f"Hopper {batch}"]["error"] > WRONG and fixed[f"Hopper {batch}"]["error"] < RIGHT


@RELEASES
@pytest.mark.parametrize("batch", (DECODE, PREFILL, BOTH))
def test_a_checkpoint_without_a_scale_of_queries_keeps_its_bits(sides, release, batch):
    stock, fixed, _ = (side[f"no scale {batch}"] for side in sides(release))
    assert stock["error"] < RIGHT and fixed == stock


@RELEASES
@pytest.mark.parametrize("batch", (DECODE, PREFILL, BOTH))
def test_layers_left_unquantised_need_the_other_fix_too(sides, release, batch):
    """Here the query's scale alone goes: what is left is the fault of a checkpoint without one."""
    stock, fixed, together = sides(release)
    left = stock[f"skipped, of keys and values {batch}"]
    assert fixed[f"skipped {batch}"] == left and left["error"] > WRONG
    assert together[f"skipped {batch}"]["error"] < RIGHT
    for name in ("Ampere", "Ada", "Hopper", "kept", "no scale"):
        assert together[f"{name} {batch}"] == fixed[f"{name} {batch}"]


class Unkept:
    dcp_world_size, scale = 1, 0.5

    def forward(self, layer, query, attn_metadata):
        if query is None:
            raise RuntimeError("the engine's own")
        return attn_metadata.prefill.wrapper.run(query, None, q_scale=0.25)


def unkept_metadata():
    part = SimpleNamespace(wrapper=SimpleNamespace(run=lambda query, cache, q_scale: query * q_scale))
    return SimpleNamespace(prefill=part, decode=SimpleNamespace())


def test_a_call_leaves_nothing_behind():
    gc.disable()
    try:
        layer, query = SimpleNamespace(_q_scale_float=0.25, _k_scale_float=1.0), torch.ones(3)
        gone, state = weakref.ref(query), FixState(FIX)
        out = one_call.run(TARGET, Unkept.forward, state, Unkept(), layer=layer, query=query, attn_metadata=unkept_metadata())
        assert out.tolist() == [1.0] * 3 and state.counters.rows == 3
        del query
        assert gone() is None
        with pytest.raises(RuntimeError, match="own"):
            one_call.run(
                TARGET, Unkept.forward, FixState(FIX), Unkept(), layer=layer, query=None, attn_metadata=unkept_metadata()
            )
    finally:
        gc.enable()
