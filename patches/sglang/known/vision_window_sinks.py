"""sglang.vision-window-sinks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, IMAGES

_VISION = "sglang.srt.layers.attention.vision"

BUG = KnownBug(
    id="sglang.vision-window-sinks",
    title="MiMo-V2.5 misreads images on all GPUs but Hopper: its encoder loses windows and sinks",
    symptom="Vision backends other than fa3 and xpu_attn attend to the whole image, where a layer has a window and sinks.",
    symptoms=(IMAGES, BACKEND),
    releases=(">=0.5.11,<=0.5.23",),
    code=(f"{_VISION}:VisionTritonAttention.forward", f"{_VISION}:VisionFlash4Attention.forward"),
    upstream=Upstream("sgl-project/sglang", pull=38872, issue=37983),
    hits=AllOf(
        Is("architecture", "MiMoV2ForCausalLM"),
        Not(Is("--mm-attention-backend", "fa3", "xpu_attn")),
        AnyOf(
            Given("--mm-attention-backend"),
            AllOf(Since("0.5.16"), Not(Is("compute capability", 90)), Not(AllOf(Since("0.5.23"), Is("GPU", "Intel")))),
        ),
        Unseen("whether requests have images or videos"),
    ),
    avoid="On Ampere, set `--mm-attention-backend fa3`. On Blackwell and AMD GPUs nothing within the release avoids it.",
)
