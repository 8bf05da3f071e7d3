"""Rows of vllm.dcp-spec-graph for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DRAFTS_DCP, MTP, VLLM
from tests.support.ways import GRAPHS, MLA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "R1", "h200", DRAFTS_DCP + "FLASHMLA", HIT, "drafts under DCP: prefills (--attention-b"),
    ("0.16.0", "R1", "h200", DRAFTS_DCP.replace("--attention-backend ", "--kv-cache-dtype fp8"), HIT, "default of vLLM 0.16.0"),
    ("0.28.0", "R1", "b200", DRAFTS_DCP + "FLASHINFER_MLA", HIT, "FLASHINFER_MLA"),
    ("0.29.0", "R1", "b200", DRAFTS_DCP + "FLASHINFER_MLA", NOT_HIT, "decodes"),
    ("0.25.1", "R1", "h200", DRAFTS_DCP + "TRITON_MLA", HIT, "TRITON_MLA"),
    ("0.26.0", "R1", "h200", DRAFTS_DCP + "TRITON_MLA", NOT_HIT, "without graphs"),
    ("0.33.0", "R1", "h200", DRAFTS_DCP + "TRITON_MLA", HIT, "TRITON_MLA"),
    ("0.33.0", "R1", "h200", DRAFTS_DCP + "FLASH_ATTN_MLA", NOT_HIT, "decodes"),
    ("0.33.0", "R1", "b200", DRAFTS_DCP + "CUTLASS_MLA", NOT_HIT, "without graphs"),
    ("0.33.0", "R1", "h200", DRAFTS_DCP + "MINE", POSSIBLE, "what MINE takes drafts for was not read"),
    ("0.33.0", "R1", "h200", MTP + "-dcp 2", NOT_HIT, "FLASH_ATTN_MLA"),
    ("0.33.0", "R1", "h200", MTP + "-dcp 2 --block-size 64", POSSIBLE, "may choose another"),
    ("0.33.0", "R1", "h200", MTP + "--attention-backend FLASHMLA", NOT_HIT, "parallel size: 1"),
    ("0.33.0", "R1", "h200", VLLM + "-dcp 2 --attention-backend FLASHMLA", NOT_HIT, "decoding: off"),
    ("0.33.0", "R1", "h200", DRAFTS_DCP + "FLASHMLA -cc.cudagraph_mode=PIECEWISE", NOT_HIT, "PIECEWISE"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "decode context parallel size": ((2, 8), 1), "speculative decoding": (("on",), "off"),
     "full CUDA graphs": GRAPHS, "drafts under DCP": (("prefills",), "decodes")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "_OfOneToken.get_builder_cls": "returns itself",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention": "MLA",
    "attention-backend": "FLASHMLA",
    "block-size": 64,
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "speculative-method": "mtp",
    "cudagraph-mode": "FULL_DECODE_ONLY",
    "dtype": "float16",
}
