"""vllm.gemma4-fa4-images, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, IMAGES, LONG_PROMPT

BUG = KnownBug(
    id="vllm.gemma4-fa4-images",
    title="Gemma 4 answers gibberish to long prompts with an image on Hopper (FlashAttention 4)",
    symptom="Windowed layers see all of a prompt with an image, and a later chunk of it is masked by places within the chunk.",
    symptoms=(IMAGES, GARBAGE, LONG_PROMPT, BACKEND),
    releases=(">=0.24.0,<0.25.0",),
    code=("vllm.v1.attention.backends.flash_attn:_make_mm_prefix_mask_mod",),
    upstream=Upstream("vllm-project/vllm", pull=47332, issue=47300),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        Is("attention backend", "FLASH_ATTN"),
        Is("compute capability", 90),
        Unseen('`use_bidirectional_attention` "vision", and images in prompts beyond the window or one chunk'),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
