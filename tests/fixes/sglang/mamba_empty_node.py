"""Rows of sglang.mamba-empty-node for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_PAGED = SGL + "--page-size 16 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "Next", "h100", _PAGED, HIT, "tokens of a page: 16"),
    ("0.5.15", "Nemotron", "b200", SGL + "--attention-backend trtllm_mha", HIT, "trtllm_mha"),
    ("0.5.14", "Next", "h100", SGL, NOT_HIT, "tokens of a page: 1"),
    ("0.5.14", "Next", "b200", _PAGED, POSSIBLE, "name --attention-backend"),
    ("0.5.14", "Next", "h100", SGL + "--attention-backend fa4", POSSIBLE, "some GPUs"),
    ("0.5.14", "Ring", "h100", SGL + "--attention-backend flashmla", HIT, "64"),
    ("0.5.14", "Ring", "b200", SGL + "--attention-backend trtllm_mla --page-size 1", HIT, "32"),
    ("0.5.14", "Next", "h100", _PAGED + "--disaggregation-mode decode", NOT_HIT, "decode"),
    ("0.5.14", "Next", "h100", _PAGED + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.14", "Next", "h100", _PAGED + "--enable-hierarchical-cache", NOT_HIT, "--enable-hierarchical"),
    ("0.5.14", "Next", "h100", "SGLANG_ENABLE_UNIFIED_RADIX_TREE=1 " + _PAGED, NOT_HIT, "UNIFIED"),
    ("0.5.14", "Next", "h100", _PAGED + "--radix-cache-backend mine", POSSIBLE, "another one"),
    ("0.5.14", "Llama", "h100", _PAGED, NOT_HIT, "recurrent layers: off"),
    ("0.5.14", None, "h100", _PAGED, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"), "tokens of a page": ((16, 64), 1),
     "radix cache for recurrent states alone": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "page-size": 16,
}
