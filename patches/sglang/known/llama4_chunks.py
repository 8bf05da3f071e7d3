"""sglang.llama4-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_ROOM = "sglang.srt.layers.attention"
_CLASSES = (
    f"{_ROOM}.triton_backend:TritonAttnBackend",
    f"{_ROOM}.trtllm_mha_backend:TRTLLMHAAttnBackend",
    f"{_ROOM}.aiter_backend:AiterAttnBackend",
)
_BACKENDS = "triton", "trtllm_mha", "aiter", "ascend", "torch_native", "intel_amx", "flashinfer", "flex_attention"

BUG = KnownBug(
    id="sglang.llama4-chunks",
    title="Worse answers of Llama 4 beyond 8192 tokens on Triton, TRT-LLM MHA and AITER: no attention chunks",
    symptom="Three of four layers attend within chunks of 8192 tokens. These backends let them see the whole text.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=tuple(f"{owner}.forward_{mode}" for owner in _CLASSES for mode in ("extend", "decode")),
    upstream=Upstream("sgl-project/sglang", pull=5092),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        AnyOf(Is("prefill backend", *_BACKENDS), Is("decode backend", *_BACKENDS)),
        Unseen("whether texts go beyond attention_chunk_size"),
    ),
    avoid="Set `--attention-backend fa3` on Ampere, Ada and Hopper, else `--context-length 8192`.",
)
