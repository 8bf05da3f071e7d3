"""sglang.amx-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_BACKEND = "sglang.srt.layers.attention.intel_amx_backend:IntelAMXAttnBackend"

BUG = KnownBug(
    id="sglang.amx-window",
    title="Worse answers beyond the window on CPUs with AMX: window layers attend to the whole context",
    symptom="Answers of Gemma 2 or Gemma 3 get worse as soon as the context is longer than the window.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<0.5.13",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Is("prefill backend", "intel_amx"), Is("decode backend", "intel_amx")),
        AnyOf(Is("sliding-window layers", ON), Is("architecture", "Cohere2ForCausalLM", "Gemma2ForSequenceClassification")),
        Not(Is("architecture", "GptOssForCausalLM")),
    ),
    avoid="Nothing within the release on a CPU; take release 0.5.13.",
)
