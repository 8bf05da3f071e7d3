"""Rows of vllm.flashmla-fp8-graph for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import FP8, VLLM
from tests.support.ways import GRAPHS, MLA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.16.0", "R1", "h200", FP8, HIT, "attention backend: FLASHMLA (default of vLLM 0.16.0"),
    ("0.16.0", "R1", "h200", FP8, HIT, "full CUDA graphs: on (default from 0.11.0)"),
    ("0.16.0", "R1", "h200", FP8 + "-cc.cudagraph_mode=PIECEWISE", NOT_HIT, "cudagraph_mode PIECE"),
    ("0.16.0", "R1", "h200", FP8 + "-cc.cudagraph_mode=FULL_DECODE_ONLY", HIT, "FULL_DECODE_ONLY"),
    ("0.16.0", "R1", "h200", FP8 + "-cc.mode=3", POSSIBLE, "may choose"),
    ("0.16.0", "R1", "h200", FP8 + "-O1", POSSIBLE, "--optimization-level may choose the mode of CUDA graphs"),
    ("0.16.0", "R1", "h200", FP8 + "--enforce-eager", NOT_HIT, "--enforce-eager"),
    ("0.16.0", "R1", "h200", FP8 + "--attention-backend TRITON_MLA", NOT_HIT, "TRITON_MLA"),
    ("0.16.0", "R1", "b200", FP8, POSSIBLE, "the default depends on GPU"),
    ("0.16.0", "R1", "h200", VLLM, NOT_HIT, "KV cache dtype: auto"),
    ("0.16.0", "FP8-KV-R1", "h200", VLLM + "--attention-backend FLASHMLA", POSSIBLE, "kv_cache_s"),
    ("0.16.0", "V3.2", "h200", FP8, NOT_HIT, "sparse MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "attention backend": (("FLASHMLA",), "FLASH_ATTN_MLA"), "full CUDA graphs": GRAPHS,
     "KV cache dtype": (("fp8", "fp8_e4m3"), "auto")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the stand-ins write no quantised latents"
