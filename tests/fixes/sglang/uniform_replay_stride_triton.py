"""Rows of sglang.uniform-replay-stride-triton for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import ON_V2
from tests.support.ways import GRAPHS, SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Llama", "h100", ON_V2 + "--attention-backend triton", HIT, "triton"),
    ("0.5.9", "Llama", "h100", ON_V2.replace("EAGLE", "NEXTN") + "--speculative-draft-attention-backend triton", HIT, "NEXTN"),
    ("0.5.9", "Llama", "h100", ON_V2, NOT_HIT, "draft extend backend: fa3"),
    ("0.5.9", "Llama", "h100", ON_V2 + "--kv-cache-dtype fp8_e5m2", HIT, "fp8_e5m2"),
    ("0.5.9", "R1", "a100", ON_V2, HIT, "default of sglang 0.5.9"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**SPEC_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": GRAPHS},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "init_forward_metadata_replay_cuda_graph._sizes": "uniform_replay calls it, before the engine's function",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "triton", "speculative-algorithm": "EAGLE", "disable-cuda-graph": False}
