"""vllm.image-split, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.image-split",
    title="An image that is prefilled in two parts is misread (Gemma 3, PaliGemma, Molmo 2, Gemma 4)",
    symptom="Under load some images are read worse; alone, the same request is right.",
    symptoms=(IMAGES, SHARED_BATCH),
    releases=(">=0.13.0,<0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",),
    upstream=Upstream("vllm-project/vllm", pull=52412, issue=52306),
    hits=AllOf(
        AnyOf(
            Is("architecture", "Gemma3ForConditionalGeneration"),
            AllOf(Since("0.14.0"), Is("images seen both ways", ON)),
            AllOf(
                Since("0.20.0"),
                Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
                Unseen("`use_bidirectional_attention`"),
            ),
            # DeepSeek-V4 with images
            AllOf(Since("0.30.0"), Is("architecture", "DeepseekV4ForCausalLM"), Unseen("vision_n_layers in config.json")),
        ),
        Unseen("a step whose tokens run out within an image that it begins with"),
    ),
    avoid="Raise `--max-num-batched-tokens`: the higher it is, the rarer a step ends within an image.",
)
