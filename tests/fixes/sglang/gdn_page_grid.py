"""Rows of sglang.gdn-page-grid for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_PAGED = SGL + "--page-size 128 "
_BLACKWELL = _PAGED + "--attention-backend triton "
_TRTLLM = SGL + "--attention-backend trtllm_mha --linear-attn-prefill-backend triton --page-size {}"
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.18", "Next", "h100", _PAGED, HIT, "tokens of a page: 128"),
    ("0.5.13", "3.5", "h100", _PAGED + "--mamba-scheduler-strategy extra_buffer", HIT, "extra_buffer"),
    ("0.5.18", "Next", "h100", SGL + "--page-size 64", NOT_HIT, "tokens of a page: 64"),
    ("0.5.18", "Next", "h100", SGL, NOT_HIT, "tokens of a page: 1"),
    ("0.5.18", "Next", "h100", _PAGED + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.18", "Nemotron", "h100", _PAGED, NOT_HIT, "Mamba2 layers: on"),
    ("0.5.18", "Ring", "h100", _PAGED, NOT_HIT, "states every 64 tokens: off (architecture Bailing"),
    ("0.5.18", "Next", "h100", _PAGED + "--device npu", NOT_HIT, "--device npu"),
    ("0.5.18", "Llama", "h100", _PAGED, NOT_HIT, "recurrent layers: off"),
    ("0.5.18", "Next", "b200", _BLACKWELL, POSSIBLE, "name --linear-attn-prefill-backend"),
    ("0.5.16", "Next", "b200", _BLACKWELL, HIT, "Triton"),
    ("0.5.18", "Next", "b200", _BLACKWELL + "--linear-attn-prefill-backend triton", HIT, "--linear-attn-prefill-backend"),
    ("0.5.18", "Next", "b200", _BLACKWELL + "--linear-attn-prefill-backend flashinfer", NOT_HIT, "tokens: off"),
    ("0.5.18", "Next", "b300", _BLACKWELL + "--linear-attn-prefill-backend cutedsl", NOT_HIT, "tokens: off"),
    ("0.5.18", "Next", "h100", _PAGED + "--linear-attn-prefill-backend cutedsl", HIT, "--linear-attn-prefill-backend cutedsl"),
    ("0.5.18", "Next", None, _BLACKWELL + "--linear-attn-prefill-backend cutedsl", POSSIBLE, "--gpu"),
    ("0.5.18", "Next", "rtx5090", _BLACKWELL, HIT, "Triton"),
    ("0.5.18", "Next", "b200", _TRTLLM.format(128), HIT, "tokens of a page: 128"),
    ("0.5.18", "Next", "b200", _TRTLLM.format(32), NOT_HIT, "tokens of a page: 32"),
    ("0.5.18", "Next", "b200", _TRTLLM.format(256), NOT_HIT, "or more with --attention-backend trtllm_mha"),
    ("0.5.16", "Next", "b200", _TRTLLM.format(128), NOT_HIT, "or more with --attention-backend trtllm_mha"),
    ("0.5.18", "Next", "h100", SGL + "--attention-backend fa4", POSSIBLE, "128 tokens on some GPUs"),
    ("0.5.18", None, "h100", _PAGED, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "Mamba2 layers": (("off",), "on"), "tracked Mamba states": (("on",), "off"),
     "tokens of a page": ((128, 256), 64), "states every 64 tokens": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "linear attention: its hybrid model has Mamba2 layers"
