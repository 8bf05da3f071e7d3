"""sglang.gdn-untracked-prefill, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, CACHED_PREFIX

_PREFILL, _BOTH = "--linear-attn-prefill-backend", "--linear-attn-backend"


def _asked(name: str) -> AnyOf:
    """From 0.5.14 the radix cache keeps no such states where the backend of both phases is another than Triton."""
    return AnyOf(Is(_PREFILL, name), AllOf(Is(_BOTH, name), Is(_PREFILL, OFF), Not(Since("0.5.14"))))


BUG = KnownBug(
    id="sglang.gdn-untracked-prefill",
    title="Qwen3.5 and Qwen3-Next continue prefixes from stale states (prefill by FlashInfer or CuTe DSL)",
    symptom="Answers to follow-up turns are unrelated to the conversation, and right with --disable-radix-cache. No error.",
    symptoms=(CACHED_PREFIX, BACKEND),
    releases=(">=0.5.10,<0.5.17",),
    code=("sglang.srt.layers.attention.linear.gdn_backend:GDNAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is(
            "architecture",
            *("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration"),
        ),
        Is("tracked Mamba states", ON),
        AnyOf(_asked("flashinfer"), AllOf(_asked("cutedsl"), Is("compute capability", 100, 103), Since("0.5.13"))),
    ),
    avoid="Set `--linear-attn-prefill-backend triton`.",
)
