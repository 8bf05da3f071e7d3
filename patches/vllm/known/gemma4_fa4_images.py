"""vllm.gemma4-fa4-images, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, IMAGES, LONG_PROMPT

_PREFIXES = "Molmo2ForConditionalGeneration", "BagelForConditionalGeneration", "Moondream3ForCausalLM", "HfMoondream"
BUG = KnownBug(
    id="vllm.gemma4-fa4-images",
    title="Gibberish behind long prompts with an image: Gemma 4 on Hopper, Molmo 2 on Blackwell (FA4)",
    symptom="Windowed layers see all of a prompt with an image, and a later chunk of it is masked by places within the chunk.",
    symptoms=(IMAGES, GARBAGE, LONG_PROMPT, BACKEND),
    releases=(">=0.24.0,<0.25.0",),
    code=("vllm.v1.attention.backends.flash_attn:_make_mm_prefix_mask_mod",),
    upstream=Upstream("vllm-project/vllm", pull=47332, issue=47300),
    hits=AllOf(
        AnyOf(
            AllOf(
                Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
                Is("compute capability", 90),
                Unseen('`use_bidirectional_attention` "vision"'),
            ),
            AllOf(Is("architecture", *_PREFIXES), Is("compute capability", 100, 103)),
        ),
        Is("attention backend", "FLASH_ATTN"),
        Unseen("images in prompts beyond the window or one chunk, behind a cached prefix, or in a step with other requests"),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
