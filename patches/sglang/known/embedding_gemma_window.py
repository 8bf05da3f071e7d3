"""sglang.embedding-gemma-window, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="sglang.embedding-gemma-window",
    title="Wrong embeddings of longer texts from EmbeddingGemma on triton: window layers see too many tokens",
    symptom="Embeddings of longer texts differ from those of Sentence Transformers, those of short texts do not.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.17,<=0.5.23",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=32383),
    hits=AllOf(
        Is("architecture", "Gemma3TextModel"),
        Is("prefill backend", "triton"),
        Unseen("whether texts are longer than 257 tokens"),
    ),
    avoid="Set `--attention-backend fa3` on Ampere, Ada and Hopper; elsewhere keep texts within the window.",
)
