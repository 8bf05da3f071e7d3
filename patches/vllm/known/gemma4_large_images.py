"""vllm.gemma4-large-images, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.gemma4-large-images",
    title="Gemma 4 reads large images causally: one with more tokens than the window loses its mask",
    symptom="Text in an image of more than 1024 tokens, as with `max_soft_tokens` 1120, is read worse than in a smaller one.",
    symptoms=(IMAGES,),
    releases=(">=0.20.0,<0.33.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._build_attention_metadata",
        "vllm.v1.worker.gpu.model_states.default:DefaultModelState.prepare_attn",
    ),
    upstream=Upstream("vllm-project/vllm", pull=50539),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        AnyOf(Not(Since("0.25.0")), Is("model runner", "V2")),
        Unseen('`use_bidirectional_attention` "vision", and images of more tokens than the sliding window'),
    ),
    avoid="Keep `max_soft_tokens` at 560 or less, or, from 0.25.0 on, set `VLLM_USE_V2_MODEL_RUNNER=0`.",
)
