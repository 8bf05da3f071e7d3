"""sglang.trtllm-mha-one-head, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES

BUG = KnownBug(
    id="sglang.trtllm-mha-one-head",
    title="Crash on TRT-LLM MHA when a rank holds one KV head: the kernel refuses the strides of the cache",
    symptom="The server ends in buildNdTmaDescriptor ('Check failed'), such as Llama 4 on eight GPUs.",
    symptoms=(BACKEND, DIES),
    releases=(">=0.5.6,<0.5.9",),
    code=(
        "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.forward_decode",
        "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.forward_extend",
    ),
    upstream=Upstream("sgl-project/sglang", pull=17732),
    harm=CRASH,
    hits=AllOf(
        AnyOf(Is("decode backend", "trtllm_mha"), Is("prefill backend", "trtllm_mha")),
        Is("KV heads of a rank", 1),
    ),
    avoid="Set --attention-backend flashinfer, or spread over fewer GPUs than the model has KV heads.",
)
