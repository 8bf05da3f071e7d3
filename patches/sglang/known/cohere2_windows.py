"""sglang.cohere2-windows, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, LONG_PROMPT, SPECULATION

_READ = "triton", "flashinfer"

BUG = KnownBug(
    id="sglang.cohere2-windows",
    title="Command A and Command R7B: backends that do not read a window from its layer get none",
    symptom="Triton ends at the start. Decodes on FlashInfer see the whole context. Drafts of n-gram trees on fa3 miss tokens.",
    symptoms=(LONG_PROMPT, SPECULATION, DIES),
    releases=(">=0.5.8,<=0.5.23",),
    code=("sglang.srt.models.commandr:CohereAttention.__init__", "sglang.srt.models.commandr:Cohere2ForCausalLM"),
    upstream=Upstream("sgl-project/sglang", pull=16927),
    hits=AllOf(
        Is("architecture", "Cohere2ForCausalLM", "Cohere2MoeForCausalLM", "Cohere2VisionForConditionalGeneration"),
        AnyOf(Is("prefill backend", *_READ), Is("decode backend", *_READ), Is("speculative algorithm", "NGRAM")),
    ),
    avoid="Set `--attention-backend fa3` (or trtllm_mha), and no `--speculative-algorithm NGRAM`.",
)
