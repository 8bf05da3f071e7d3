"""vllm.xpu-images, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

_TRITON = AnyOf(
    Is("--attention-backend", "TRITON_ATTN"),
    Is("--attention-config.backend", "TRITON_ATTN"),
    AllOf(Not(Since("0.15.0")), Is("$VLLM_ATTENTION_BACKEND", "TRITON_ATTN")),
    AllOf(Since("0.14.0"), Is("--dtype", "float32", "float")),
)

BUG = KnownBug(
    id="vllm.xpu-images",
    title="Images are misread on Intel GPUs: their tokens do not see those behind them",
    symptom="On Intel GPUs, answers about images are worse than on NVIDIA. Answers to text are right.",
    symptoms=(IMAGES,),
    releases=(">=0.13.0,<0.25.0",),
    code=("vllm.platforms.xpu:XPUPlatform.get_attn_backend_cls",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "Intel"),
        AnyOf(Is("architecture", "Gemma3ForConditionalGeneration"), AllOf(Since("0.14.0"), Is("images seen both ways", ON))),
        Not(_TRITON),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
