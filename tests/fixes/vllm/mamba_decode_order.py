"""Rows of vllm.mamba-decode-order for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import BY_BATCH_SIZE, MTP, VLLM
from tests.support.ways import DRAFTLESS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "Nemotron", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + MTP + BY_BATCH_SIZE, HIT, "drafts by batch size: on"),
    ("0.33.0", "Nemotron", "h100", MTP + BY_BATCH_SIZE, POSSIBLE, "set VLLM_USE_V2_MODEL_RUNNER"),
    ("0.29.0", "Falcon-H1", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + MTP + "--no-async-scheduling", HIT,
     "async scheduling: off"),
    ("0.33.0", "Nemotron", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + MTP, NOT_HIT, "scheduling: on"),
    ("0.33.0", "Nemotron", "h100", MTP + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("0.33.0", "Next", "h100", MTP + BY_BATCH_SIZE, NOT_HIT, "Mamba2 layers: off"),
    ("0.33.0", "Nemotron", "h100", VLLM + "--no-async-scheduling", NOT_HIT, "decoding: off"),
    ("0.33.0", "Nemotron", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + MTP + BY_BATCH_SIZE, NOT_HIT, "model runner: V1"),
    ("0.33.0", None, "h100", MTP + BY_BATCH_SIZE, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**DRAFTLESS, "drafts by batch size": (("on",), "off")},
    {**DRAFTLESS, "async scheduling": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"recurrent": "mamba2", "drafts-by-batch-size": True, "max-num-seqs": 4}
