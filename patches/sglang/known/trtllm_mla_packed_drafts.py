"""sglang.trtllm-mla-packed-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Since
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

BUG = KnownBug(
    id="sglang.trtllm-mla-packed-drafts",
    title="EAGLE and MTP accept fewer drafts: accepted tokens read the context of another request (TRT-LLM MLA)",
    symptom="Accepted tokens lie packed, and CUDA graphs take a fixed count for each request, as if all drafts were accepted.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.6.post1,<0.5.13",),
    code=("sglang.srt.speculative.eagle_worker:EAGLEWorker.forward_draft_extend_after_decode", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("draft extend backend", "trtllm_mla"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("spec v2", OFF),
        AnyOf(Is("CUDA graphs", ON), Since("0.5.8")),
    ),
    avoid="Set --attention-backend flashinfer, or from 0.5.10 on SGLANG_ENABLE_SPEC_V2=1.",
)
