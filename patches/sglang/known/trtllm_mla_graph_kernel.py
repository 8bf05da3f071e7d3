"""sglang.trtllm-mla-graph-kernel, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, SLOW

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

BUG = KnownBug(
    id="sglang.trtllm-mla-graph-kernel",
    title="Slow decode of long contexts in CUDA graphs (TRT-LLM MLA)",
    symptom="Graphs keep the kernel that was chosen for a context of one token.",
    symptoms=(SLOW, GRAPHS),
    releases=(">=0.5.2,<0.5.4.post1",),
    code=(f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",),
    upstream=Upstream("sgl-project/sglang", pull=12093),
    harm=SLOWER,
    hits=AllOf(Is("decode backend", "trtllm_mla"), Is("CUDA graphs", ON)),
    avoid="Set --attention-backend cutlass_mla, which has no speculative decoding.",
)
