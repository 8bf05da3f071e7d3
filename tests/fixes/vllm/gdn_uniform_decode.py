"""Rows of vllm.gdn-uniform-decode for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM
from tests.support.ways import GRAPHS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.22.0", "Next", "h100", MTP, HIT, "layers of linear attention"),
    ("0.22.0", "3.5", "h100", MTP, HIT, "speculative decoding: on (--speculative-config)"),
    ("0.33.0", "Next", "h100", MTP, POSSIBLE, "set VLLM_USE_V2_MODEL_RUNNER"),
    ("0.33.0", "Next", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + MTP, HIT, "model runner: V1"),
    ("0.22.0", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.22.0", "Next", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("0.22.0", "Next", "h100", MTP + "--enforce-eager", NOT_HIT, "full CUDA graphs: off"),
    ("0.22.0", "Next", "h100", MTP + "--attention-backend FLASHINFER", NOT_HIT, "full graphs of one token alone"),
    ("0.22.0", "Llama", "h100", MTP, NOT_HIT, "no layers of linear attention"),
    ("0.27.0", "Next", "h100", MTP + "-sc.method=mtp", HIT, "0.27.0 for hybrid models"),
    ("0.29.0", "Next", "h100", MTP + "-sc.method=mtp", NOT_HIT, "model runner: V2"),
    ("0.29.0", "Next", "h100", MTP + "-sc.method=suffix", HIT, "Model Runner V2 of vLLM 0.29"),
    ("0.29.0", "Next", "h100", MTP + "-sc.method=mtp --plugin x", POSSIBLE, "needs V1"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off"), "full CUDA graphs": GRAPHS,
     "model runner": (("V1",), "V2")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
