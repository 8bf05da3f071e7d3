"""Rows of vllm.dummy-draft-kv for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP_METHOD, RANKS, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.30.0", "R1", "h200", RANKS + MTP_METHOD, HIT, "has kv_lora_rank"),
    ("0.30.0", "Next", "h200", RANKS + "-sc.method=mtp", POSSIBLE, "without num_speculative_tokens"),
    ("0.30.0", "R1", "h200", RANKS + MTP_METHOD.replace("=2", "=1"), NOT_HIT, "batch: one"),
    ("0.30.0", "R1", "h200", RANKS + MTP_METHOD.replace("mtp", "ngram"), NOT_HIT, "batch: none"),
    ("0.30.0", "R1", "h200", RANKS + "-sc.model=x", POSSIBLE, "without a method"),
    ("0.30.0", "R1", "h200", RANKS, NOT_HIT, "batch: none"),
    ("0.30.0", "R1", "h200", VLLM + MTP_METHOD, NOT_HIT, "data parallel ranks: 1"),
    ("0.29.0", "R1", "h200", "VLLM_USE_V2_MODEL_RUNNER=0 " + RANKS + MTP_METHOD, NOT_HIT, "V1"),
    ("0.29.0", "R1", "h200", "VLLM_USE_V2_MODEL_RUNNER=1 " + RANKS + MTP_METHOD, HIT, "V2"),
    ("0.30.0", "Llama", "h200", RANKS + MTP_METHOD, POSSIBLE, "names no experts"),
    ("0.30.0", None, "h200", RANKS + MTP_METHOD, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"model runner": (("V2",), "V1"), "data parallel ranks": ((2, 8), 1), "ranks in lock step": (("on",), "off"),
     "drafts of a dummy batch": (("several",), "one")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "speculative-method": "eagle",
    "dummy-batches": True,
    "enable-prefix-caching": True,
    "max-num-seqs": 2,
    "num-speculative-tokens": 3,
}
