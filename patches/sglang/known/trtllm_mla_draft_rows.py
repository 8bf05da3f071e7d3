"""sglang.trtllm-mla-draft-rows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

BUG = KnownBug(
    id="sglang.trtllm-mla-draft-rows",
    title="EAGLE and MTP accept fewer drafts: accepted tokens miss the newest, or see the next (TRT-LLM MLA)",
    symptom="Rows of accepted tokens are padded for the kernel, and the lengths of contexts do not follow.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.4,<0.5.4.post3",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.init_forward_metadata_capture_cuda_graph"),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("draft extend backend", "trtllm_mla"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
    ),
    avoid="Set --attention-backend flashinfer.",
)
