"""Rows of sglang.uniform-replay-stride-mla for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import ON_V2, SGL, SPEC
from tests.support.ways import GRAPHS, SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "R1", "b200", ON_V2, HIT, "spec v2: on (SGLANG_ENABLE_SPEC_V2=1)"),
    ("0.5.9", "R1", "b200", SPEC, NOT_HIT, "spec v2: off (no SGLANG_ENABLE_SPEC_V2)"),
    ("0.5.9", "R1", "b200", "SGLANG_ENABLE_SPEC_V2=1 " + SGL, NOT_HIT, "none"),
    ("0.5.9", "R1", "b200", ON_V2 + "--disable-cuda-graph", NOT_HIT, "CUDA graphs: off"),
    ("0.5.9", "R1", "h100", ON_V2, NOT_HIT, "draft extend backend: fa3"),
    ("0.5.9", "R1", "b200",
     ON_V2 + "--decode-attention-backend flashinfer --prefill-attention-backend trtllm_mla --speculative-attention-mode decode",
     NOT_HIT, "draft extend backend: flashinfer (--decode-attention-backend)"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**SPEC_V2, "draft extend backend": (("trtllm_mla",), "triton"), "CUDA graphs": GRAPHS},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "init_forward_metadata_replay_cuda_graph._sizes": "uniform_replay calls it, before the engine's function",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the releases that it corrects lay drafts out in another way, which the harness does not read"
