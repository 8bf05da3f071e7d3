"""sglang.xpu-cross-pages, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="sglang.xpu-cross-pages",
    title="Garbage from Whisper and Llama 3.2 Vision on Intel GPUs: cross attention takes slots for pages",
    symptom="Transcripts and answers are garbage on intel_xpu; decoders read wrong keys of the encoder and of their own.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.4,<0.5.20",),
    code=("sglang.srt.layers.attention.xpu_backend:XPUAttentionBackend.init_forward_metadata",),
    upstream=Upstream("sgl-project/sglang", pull=36298),
    hits=AllOf(
        Is("encoder-decoder", ON),
        AnyOf(Is("prefill backend", "intel_xpu"), Is("decode backend", "intel_xpu")),
    ),
    avoid="Set `--attention-backend triton`.",
)
