"""vllm.image-split, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, IMAGES, SHARED_BATCH

from . import wrap

_CORE = "vllm.v1.core"
_SCHEDULER = f"{_CORE}.sched.scheduler:Scheduler"

FIX = Fix(
    id="vllm.image-split",
    title="An image that is prefilled in two parts is misread (Gemma 3, PaliGemma, Molmo 2, Gemma 4)",
    symptom="Under load some images are read worse; alone, the same request is right. No error.",
    symptoms=(IMAGES, SHARED_BATCH, CACHED_PREFIX),
    cause=(
        "These models attend both ways within an image. A step may run out of tokens in an image that it begins with, or that "
        "a cached prefix ends in; up to 0.31 also in one that the encoder's cache holds, and up to 0.29 on AMD in any. The "
        "first part does not see the rest. Its KV stays wrong, and is cached for others."
    ),
    correction=(
        "The step of a request ends before such an image, or the request waits for a step that holds the rest. 0.33.0 does so "
        "for an image that a step begins with. Here no request waits that is the first in the batch, nor for an image that "
        "no step holds, nor for more than 512 steps."
    ),
    upstream=Upstream("vllm-project/vllm", pull=52412, issue=52306),
    hardware="any GPU (models that attend both ways within images)",
    targets=(
        Target(
            wrap.try_schedule_encoder_inputs,
            needed=wrap.ends_within,
            paths=(f"{_SCHEDULER}._try_schedule_encoder_inputs",),
        ),
    ),
    # How many tokens a request is offered, in which order, and what the encoder's cache holds
    witnesses=(
        f"{_SCHEDULER}.schedule",
        f"{_CORE}.encoder_cache_manager:EncoderCacheManager.check_and_update_cache",
        f"{_CORE}.encoder_cache_manager:EncoderCacheManager.can_allocate",
        "vllm.config.model:ModelConfig.is_mm_prefix_lm",
    ),
    look_does="its look reads what a correction stored",
    cost=(
        "About a microsecond for each prompt with images in a step. An image starts a step later, and the rest of the former "
        "step may stay empty: up to 0.32, prompts behind it wait, too. Beside so many answers that no step has room for the "
        "image, it starts once some of them have ended."
    ),
    avoid="Raise `--max-num-batched-tokens`: the higher it is, the rarer a step ends within an image.",
    expect=(
        "On one replica under load, answers on images become those that the request gets alone, but for sums in another order."
    ),
    hits=Is("images attended both ways", ON),
)
