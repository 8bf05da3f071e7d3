"""vllm.gemma4-large-images, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.gemma4-large-images",
    title="Gemma 4 misreads images that have more tokens than its window: they are seen causally",
    symptom="With `max_soft_tokens` of 1120, large images and scans are read worse than small ones, or as fragments.",
    symptoms=(IMAGES,),
    releases=(">=0.20.0,<0.25.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._build_attention_metadata",),
    upstream=Upstream("vllm-project/vllm", pull=47217),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        Unseen('an image of more tokens than the window, and `use_bidirectional_attention` of "vision" in config.json'),
    ),
    avoid="Keep images below the window of 1024 tokens: a `max_soft_tokens` of 560 or less.",
)
