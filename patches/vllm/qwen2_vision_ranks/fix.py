"""vllm.qwen2-vision-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, IMAGES

from . import wrap

_MODELS, _LINEAR = "vllm.model_executor.models", "vllm.model_executor.layers.linear"

FIX = Fix(
    id="vllm.qwen2-vision-ranks",
    title="Qwen2-VL misreads every image on several ranks: keys and values of the encoder are mixed up",
    symptom="With `--tensor-parallel-size` above 1, answers on images are invented, while text alone is right.",
    symptoms=(IMAGES, GARBAGE),
    cause=(
        "The projection of the tower gives each rank a third, a half or less of query, keys and values in a row. Each rank "
        "takes a third of what it has for its query."
    ),
    correction="What the ranks have is gathered, and each takes query, keys and values of its own heads, as in 0.13.0.",
    upstream=Upstream("vllm-project/vllm", pull=30542, issue=30250),
    hardware="any GPU (Qwen2-VL and models made of it, several ranks)",
    default=True,
    default_reason="silent wrong output in every answer on an image; 0.13.0 gathers likewise",
    targets=(
        Target(
            wrap.split_qkv,
            needed=wrap.is_split_in_a_row,
            paths=(f"{_MODELS}.qwen2_vl:Qwen2VisionAttention.split_qkv",),
        ),
    ),
    # A rank's part of the projection, and the number of ranks
    witnesses=(
        f"{_MODELS}.qwen2_vl:Qwen2VisionAttention.__init__",
        f"{_MODELS}.dots_ocr:DotsVisionAttention",
        f"{_LINEAR}:ColumnParallelLinear",
        "vllm.distributed.communication_op:tensor_model_parallel_all_gather",
    ),
    ranks_alike=True,
    cost="One gather over the ranks for each layer of the encoder, as in 0.13.0.",
    avoid="Set `--mm-encoder-tp-mode data`.",
    expect="On one server of several ranks, answers on images become those of a server of one rank, but for rounding.",
    hits=AllOf(
        Is("architecture", "Qwen2VLForConditionalGeneration", "Tarsier2ForConditionalGeneration", "JinaVLForRanking"),
        Above("ranks of the vision tower", 1),
    ),
)
