"""vllm.mimo-vision-sinks, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.mimo-vision-sinks",
    title="MiMo-V2-Omni misreads images: windowed layers of its vision encoder leave the sinks out",
    symptom="Images and videos are described worse than by the reference; text alone is right.",
    symptoms=(IMAGES,),
    releases=(">=0.21.0,<0.28.0",),
    code=("vllm.model_executor.models.mimo_v2_omni:MiMoVisionAttention._forward_window_attn",),
    upstream=Upstream("vllm-project/vllm"),
    hits=Is("architecture", "MiMoV2OmniForCausalLM"),
    avoid="Nothing within the release avoids it; take release 0.28.0.",
)
