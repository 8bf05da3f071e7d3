"""Rows of sglang.kv-scales-file for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SCALED, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.1", "Llama", "h100", SCALED, HIT, "--quantization-param-path, --kv-cache-dtype fp8_e4m3"),
    ("0.5.9", "Llama", "a100", SCALED, HIT, "flashinfer"),
    ("0.5.1.post3", "Llama", "a100", SCALED, NOT_HIT, "flashinfer"),
    ("0.5.10", "Llama", "a100", SCALED + "--attention-backend triton", HIT, "triton"),
    ("0.5.9", "Llama", "a100", SCALED + "--attention-backend triton", NOT_HIT, "triton"),
    ("0.5.9", "Llama", "a100", SCALED + "--prefill-attention-backend triton --decode-attention-backend flashinfer", HIT,
     "--decode-attention-backend"),
    ("0.5.23", "Llama", "b200", SCALED, HIT, "trtllm_mha"),
    ("0.5.15", "Llama", "b200", SCALED, NOT_HIT, "trtllm_mha"),
    ("0.5.13", "Llama", "b200", SCALED, HIT, "trtllm_mha"),
    ("0.5.23", "Llama", "h100", SCALED + "--attention-backend torch_native", NOT_HIT, "torch_native"),
    ("0.5.23", "Llama", "mi300x", SCALED, POSSIBLE, "what aiter reads"),
    ("0.5.23", "Llama", None, SCALED, POSSIBLE, "needs --gpu"),
    ("0.5.23", "Llama", "h100", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "no --quantization"),
    ("0.5.23", "Llama", "h100", SGL + "--quantization-param-path s.json", NOT_HIT, "auto"),
    ("0.5.23", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"KV scales from a file": (("on",), "off"), "backends that want more than a file leaves": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"kv-cache-dtype": "fp8_e4m3", "quantization-param-path": "scales"}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it makes a backend as it is made, and sets values that the backend's making does not read"
