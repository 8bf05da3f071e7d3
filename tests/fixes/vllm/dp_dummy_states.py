"""Rows of vllm.dp-dummy-states for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import RANKS, VLLM

_V1, _V2 = "VLLM_USE_V2_MODEL_RUNNER=0 " + RANKS, "VLLM_USE_V2_MODEL_RUNNER=1 " + RANKS
_CACHED = "--enable-prefix-caching "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "Next-experts", "h200", _V2 + _CACHED, HIT, "names 512 experts"),
    ("0.26.0", "Next-experts", "h200", _V1 + _CACHED, HIT, "full CUDA graphs: on"),
    ("0.26.0", "Next-experts", "h200", _V1 + _CACHED + "--enforce-eager", NOT_HIT, "gives a dummy batch no slots"),
    ("0.26.0", "Next-experts", "h200", VLLM + _CACHED, NOT_HIT, "data parallel ranks: 1"),
    ("0.26.0", "R1", "h200", _V1, NOT_HIT, "gives a dummy batch no slots"),
    ("0.26.0", "Next", "h200", _V2 + _CACHED, POSSIBLE, "names no experts"),
    ("0.19.1", "R1", "h200", _V1, HIT, "full CUDA graphs: on"),
    ("0.18.1", "R1", "h200", _V1 + "--enforce-eager", NOT_HIT, "slots of a dummy batch: outside MLA"),
    ("0.17.1", "R1", "h200", _V1 + "--enforce-eager", HIT, "slots of a dummy batch: always"),
    ("0.12.0", "R1", "h200", _V1, HIT, "slots of a dummy batch: in graphs"),
]  # fmt: skip
_RANKS = {"data parallel ranks": ((2, 8), 1), "ranks in lock step": (("on",), "off")}
_FULL, _SLOTS = {"full CUDA graphs": (("on",), "off")}, "slots of a dummy batch"
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    *(
        _RANKS | {"recurrent layers": (("on",), "off")} | runner | owner
        for runner in ({"model runner": (("V2",), "V1")}, _FULL)
        for owner in ({"cached prefixes of a hybrid model": (("on",), "off")}, {"KV connector": (("on",), "off")})
    ),
    _RANKS | {"model runner": (("V1",), "V2"), _SLOTS: (("always",), "never")},
    _RANKS | {"model runner": (("V1",), "V2"), _SLOTS: (("outside MLA",), "never"), "attention": (("MHA",), "MLA")},
    _RANKS | {"model runner": (("V1",), "V2"), _SLOTS: (("outside MLA", "in graphs"), "never")} | _FULL,
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "what a layer with a state, or one of Model Runner V1, writes in a dummy batch: its dummy batches draft alone"
