"""sglang.grok-temperature, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_ROOM = "sglang.srt.layers.attention"
_CLASSES = (
    f"{_ROOM}.flashattention_backend:FlashAttentionBackend",
    f"{_ROOM}.flashinfer_backend:FlashInferAttnBackend",
    f"{_ROOM}.trtllm_mha_backend:TRTLLMHAAttnBackend",
    f"{_ROOM}.aiter_backend:AiterAttnBackend",
)

BUG = KnownBug(
    id="sglang.grok-temperature",
    title="Worse answers of Grok 2 to long prompts on all backends but Triton: no attention temperature",
    symptom="Behind attn_temperature_len tokens, the model's scores grow with the position. Triton alone does so.",
    symptoms=(BACKEND, LONG_PROMPT),
    releases=(">=0.5.1,<=0.5.23",),
    code=tuple(f"{owner}.forward_{mode}" for owner in _CLASSES for mode in ("extend", "decode")),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Grok1ForCausalLM", "Grok1ModelForCausalLM"),
        AnyOf(Not(Is("prefill backend", "triton")), Not(Is("decode backend", "triton"))),
        Unseen("whether config.json names attn_temperature_len"),
    ),
    avoid="Set `--attention-backend triton`.",
)
