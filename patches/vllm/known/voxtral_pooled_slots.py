"""vllm.voxtral-pooled-slots, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.voxtral-pooled-slots",
    title="Voxtral's streaming model transcribes garbage: its encoder writes KV to slots of the decoder",
    symptom="Transcripts are wrong. The encoder has several KV rows for each token, and the cache gets one of them.",
    symptoms=(GARBAGE,),
    releases=(">=0.15.0,<0.16.0",),
    code=("vllm.model_executor.models.whisper_causal:create_whisper_attention_backend_with_block_pooling",),
    upstream=Upstream("vllm-project/vllm"),
    hits=Is("architecture", "VoxtralStreamingGeneration"),
    avoid="Nothing within the release avoids it; take release 0.16.0.",
)
