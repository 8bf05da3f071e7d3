"""Rows of sglang.fa3-swa-topk for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SPEC, TREES
from tests.support.ways import SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "gpt-oss", "h100", TREES + "--attention-backend fa3", HIT, "verify backend: fa3"),
    ("0.5.9", "gpt-oss", "h100", TREES, HIT, "verify backend: fa3 (default of sglang 0.5.9: GptOssForCausalLM on h100"),
    ("0.5.8", "gpt-oss", "h100", TREES, NOT_HIT, "KV pool: off (--speculative-algorithm with sglang 0.5.8)"),
    ("0.5.9", "gpt-oss", "h100", TREES + "--attention-backend triton", NOT_HIT, "backend: triton"),
    ("0.5.9", "gpt-oss", "h100",
     TREES + "--prefill-attention-backend triton --decode-attention-backend fa3 --speculative-attention-mode decode", HIT,
     "verify backend: fa3 (--decode-attention-backend)"),
    ("0.5.9", "Llama", "h100", TREES + "--attention-backend fa3", NOT_HIT, "has no window layers"),
    ("0.5.9", "gpt-oss", "h100", SPEC + "--attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1",
     NOT_HIT, "speculative topk: 1"),
    ("0.5.9", "Gemma2", "h100", TREES + "--attention-backend fa3", NOT_HIT, "KV pool: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative topk": ((2, 8), 1),
     "verify backend": (("fa3", "fa4"), "triton"), "sliding-window KV pool": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the releases that it corrects lay drafts out in another way, which the harness does not read"
