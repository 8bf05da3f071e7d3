"""vllm.encoder-decoder-leak, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.encoder-decoder-leak",
    title="A server of Whisper runs out of GPU memory: encoder outputs are never freed",
    symptom=(
        "GPU memory grows with each recording or image of an encoder-decoder model, up to an error of memory. "
        "The worker frees an output one step too early, before it exists."
    ),
    symptoms=(DIES,),
    releases=(">=0.13.0,<0.14.1",),
    code=("vllm.v1.core.encoder_cache_manager:EncoderDecoderCacheManager.get_freed_mm_hashes",),
    upstream=Upstream("vllm-project/vllm", issue=31577, pull=32789),
    hits=Is("architecture", "WhisperForConditionalGeneration", "NemotronParseForConditionalGeneration"),
    avoid="Nothing within the release avoids it; restart the server before its memory is full.",
    harm=CRASH,
)
