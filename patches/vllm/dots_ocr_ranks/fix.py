"""vllm.dots-ocr-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, IMAGES

from . import wrap

_MODELS, _LINEAR = "vllm.model_executor.models", "vllm.model_executor.layers.linear"

FIX = Fix(
    id="vllm.dots-ocr-ranks",
    title="dots.ocr misreads every page on several ranks: keys and values of the encoder are mixed up",
    symptom="With `--tensor-parallel-size` above 1, the text of a page is invented. One rank alone reads it right.",
    symptoms=(IMAGES, GARBAGE),
    cause=(
        "The tower splits its query, keys and values with Qwen2-VL's function. From 0.13.0 on that gathers what ranks have, "
        "and expects all queries first. The tower's projection gives each rank all three of its own heads."
    ),
    correction="For this tower, the function splits what a rank has. Nothing is gathered, as in 0.12.0.",
    upstream=Upstream("vllm-project/vllm", report="vllm-dots-ocr-ranks"),
    hardware="any GPU (dots.ocr, several ranks)",
    targets=(
        Target(
            wrap.split_qkv,
            needed=wrap.is_split_by_head,
            paths=(f"{_MODELS}.qwen2_vl:Qwen2VisionAttention.split_qkv",),
        ),
    ),
    # A rank's part of the projection, its splitter, and the function that reads it
    witnesses=(
        f"{_MODELS}.dots_ocr:DotsVisionAttention",
        f"{_LINEAR}:QKVParallelLinear",
        f"{_LINEAR}:ColumnParallelLinear.forward",
        "vllm.distributed.communication_op:tensor_model_parallel_all_gather",
        "vllm.distributed.utils:split_tensor_along_last_dim",
    ),
    ranks_alike=True,
    cost="None: a gather over the ranks is left out in each layer of the encoder.",
    avoid="Set `--mm-encoder-tp-mode data`.",
    expect="On one server of several ranks, the text of a page becomes that of a server of one rank, but for rounding.",
    hits=AllOf(Is("architecture", "DotsOCRForCausalLM"), Above("ranks of the vision tower", 1)),
)
