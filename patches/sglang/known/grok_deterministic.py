"""sglang.grok-deterministic, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

_BACKEND = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend"

BUG = KnownBug(
    id="sglang.grok-deterministic",
    title="Worse answers of Grok 2 to long prompts with --enable-deterministic-inference (Triton)",
    symptom="Prefill shrinks the scores behind attn_temperature_len tokens, where the model's definition lets them grow.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.4,<=0.5.23",),
    code=(f"{_BACKEND}._forward_extend_unified",),
    upstream=Upstream("sgl-project/sglang", pull=32943, issue=32942),
    hits=AllOf(
        Is("architecture", "Grok1ForCausalLM", "Grok1ModelForCausalLM"),
        Is("prefill backend", "triton"),
        Is("deterministic inference", ON),
        Unseen("whether config.json names attn_temperature_len"),
    ),
    avoid="Leave `--enable-deterministic-inference` away.",
)
