"""sglang.trtllm-mla-graph-pages, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

BUG = KnownBug(
    id="sglang.trtllm-mla-graph-pages",
    title="Garbage beyond 64 pages of context with CUDA graphs (TRT-LLM MLA)",
    symptom="Answers turn into garbage once a request is longer than 64 pages, 2,048 tokens of a page of 32.",
    symptoms=(GARBAGE, GRAPHS),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend.init_forward_metadata_capture_cuda_graph",),
    upstream=Upstream("sgl-project/sglang", pull=9675),
    hits=AllOf(Is("decode backend", "trtllm_mla"), Is("CUDA graphs", ON)),
    avoid="Set `--decode-attention-backend flashinfer`, or `--disable-cuda-graph`, which slows decoding.",
)
