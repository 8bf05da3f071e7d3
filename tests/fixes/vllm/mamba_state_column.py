"""Rows of vllm.mamba-state-column for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, DFLASH_METHOD, MTP_METHOD, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.29.0", "Qwen4Exp", "h100", CACHED, HIT, "sparse attention in blocks of their own"),
    ("0.31.0", "Qwen4Exp", "h100", CACHED, NOT_HIT, "no layers with blocks of another length"),
    ("0.31.0", "Next", "b200", CACHED + DFLASH_METHOD, POSSIBLE, "may have shorter blocks"),
    ("0.31.0", "Next", "b200", CACHED + DFLASH_METHOD + "-tp 2", POSSIBLE, "should keep the size"),
    ("0.31.0", "Next", "b200", CACHED + "-pp 2", POSSIBLE, "should keep the size"),
    ("0.31.0", "Next", "h100", CACHED + MTP_METHOD, NOT_HIT, "beside those of states: as long"),
    ("0.31.0", "Next", "h100", CACHED + "-sc.model=x", POSSIBLE, "without a method"),
    ("0.31.0", "Next-windows", "h100", CACHED, POSSIBLE, "their blocks may be shorter"),
    ("0.29.0", "Next", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + CACHED, NOT_HIT, "model runner: V1"),
    ("0.31.0", "Next", "h100", VLLM + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.31.0", "Llama", "h100", CACHED, NOT_HIT, "no layers with a recurrent state"),
    ("0.31.0", None, "h100", CACHED + "--config a.yaml", POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
     "model runner": (("V2",), "V1"), "blocks beside those of states": (("shorter",), "as long")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "recurrent": "mamba2",
    "attention-backend": "FLASHINFER",
    "attention": "MHA",
    "kv-cache-dtype": "fp8",
    "windows": "alternate",
    "enable-prefix-caching": True,
    "capability": (9, 0),
}
