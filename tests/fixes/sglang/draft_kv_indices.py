"""Rows of sglang.draft-kv-indices for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL, SPEC
from tests.support.ways import GRAPHS, SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8", HIT, "topk or page size above 1"),
    ("0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 1", NOT_HIT, "speculative topk: 1"),
    ("0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 1 --speculative-eagle-topk 8", NOT_HIT, "speculative steps: 1"),
    ("0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8 --config a.yaml", POSSIBLE,
     "--speculative-draft-attention-backend may be set in --config a.yaml"),
    ("0.5.9", "Llama", "h100", SPEC, NOT_HIT, "draft decode backend: fa3"),
    ("0.5.9", "Llama", "h100", SPEC + "--attention-backend flashinfer", HIT,
     "speculative topk: 4 (sglang 0.5.9 chooses it for LlamaForCausalLM)"),
    ("0.5.9", "Llama", "h100", SGL, NOT_HIT, "speculative algorithm: none"),
    ("0.5.9", "R1", "h100", SPEC + "--attention-backend flashinfer", NOT_HIT, "attention: MLA"),
    ("0.5.9", "Llama", "h100", SPEC + "--speculative-num-steps 5 --speculative-eagle-topk 8 --disable-cuda-graph", NOT_HIT,
     "CUDA graphs: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative topk": ((2, 8), 1),
     "speculative steps": ((2, 5), 1), "attention": (("MHA",), "MLA"),
     "draft decode backend": (("flashinfer",), "triton"), "CUDA graphs": GRAPHS},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the releases that it corrects lay drafts out in another way, which the harness does not read"
