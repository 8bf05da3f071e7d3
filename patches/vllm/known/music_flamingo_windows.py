"""vllm.music-flamingo-windows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.music-flamingo-windows",
    title="MusicFlamingo hears an audio by its place in the batch: windows take positions of other audios",
    symptom="Answers about one audio change with the other audios that are encoded in the same step.",
    symptoms=(IMAGES, SHARED_BATCH),
    releases=(">=0.19.0,<0.24.0",),
    code=("vllm.model_executor.models.musicflamingo:MusicFlamingoRotaryEmbedding.forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "MusicFlamingoForConditionalGeneration"),
        Unseen("several audios, of one prompt or of several, encoded in one step"),
    ),
    avoid="Send one audio per prompt, and one prompt at a time.",
)
