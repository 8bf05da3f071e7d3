"""Rows of sglang.zero-kv-rows for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL
from tests.support.ways import CHUNKED, PREFILL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "R1", "b200", SGL, HIT, "prefill backend: trtllm_mla (default of sglang 0.5.9"),
    ("0.5.9", "R1", "b300", SGL + "--attention-backend trtllm_mla", HIT, "(--attention-backend)"),
    ("0.5.9", "R1", "h200", SGL, NOT_HIT, "prefill backend: fa3"),
    ("0.5.9", "R1", "h200", SGL + "--attention-backend trtllm_mla", NOT_HIT, "no server starts with it"),
    ("0.5.9", "R1", "h200", SGL + "--prefill-attention-backend trtllm_mla", POSSIBLE, "was not read"),
    ("0.5.9", "R1", "rtx5090", SGL, NOT_HIT, "prefill backend: triton"),
    ("0.5.9", "R1", "mi300x", SGL, NOT_HIT, "aiter or triton"),
    ("0.5.9", "V2", "b200", SGL, NOT_HIT, "prefill backend: flashinfer"),
    ("0.5.3", "R1", "b200", SGL, NOT_HIT, "prefill backend: flashinfer"),
    ("0.5.9", "R1", None, SGL, POSSIBLE, "needs --gpu"),
    ("0.5.9", "R1", "b200", None, POSSIBLE, "needs the launch command"),
    ("0.5.9", None, "b200", SGL, POSSIBLE, "needs the model's config.json"),
    ("0.5.9", "Llama", "b200", SGL, NOT_HIT, "config.json has no kv_lora_rank"),
    ("0.5.9", "V3.2", "b200", SGL, NOT_HIT, "sparse MLA"),
    ("0.5.9", "R1", "b200", SGL + "--disable-chunked-prefix-cache", NOT_HIT, "prefix cache: off"),
    ("0.5.9", "R1", "b200", SGL + "--disable-radix-cache", HIT, "cached prefix: on"),
    ("0.5.9", "R1", "b200", SGL + "--disable-radix-cache --chunked-prefill-size -1", NOT_HIT, "off"),
    ("0.5.9", "R1", "b200", SGL + "--config a.yaml", POSSIBLE, "--config a.yaml, which is not read"),
    ("0.5.9", "R1", "b200", SGL + "--decode-attention-backend fa3", NOT_HIT, "flashinfer"),
    ("0.5.9", "R1", "b200", SGL + "--prefill-attention-backend trtllm_mla", HIT, "trtllm_mla"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    *({**CHUNKED, name: (("trtllm_mla",), "flashinfer")} for name in PREFILL),
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "trtllm_mla",
    "prefill-attention-backend": None,
    "dtype": "bfloat16",
    "model": "mla",
    "latent-prefix": "chunks",
}
