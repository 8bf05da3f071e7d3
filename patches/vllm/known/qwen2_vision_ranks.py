"""vllm.qwen2-vision-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, IMAGES

BUG = KnownBug(
    id="vllm.qwen2-vision-ranks",
    title="Qwen2-VL misreads every image on several ranks: keys and values of the encoder are mixed up",
    symptom="With `--tensor-parallel-size` above 1, answers on images are invented, while text alone is right.",
    symptoms=(IMAGES, GARBAGE),
    releases=(">=0.11.1,<0.13.0",),
    code=("vllm.model_executor.models.qwen2_vl:Qwen2VisionAttention.split_qkv",),
    upstream=Upstream("vllm-project/vllm", pull=30542, issue=30250),
    hits=AllOf(
        Is("architecture", "Qwen2VLForConditionalGeneration", "Tarsier2ForConditionalGeneration", "JinaVLForRanking"),
        Above("--tensor-parallel-size", 1),
        Not(Is("--mm-encoder-tp-mode", "data")),
    ),
    avoid="Set `--mm-encoder-tp-mode data`.",
)
