"""sglang.ascend-vision-lengths, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.doctor.sglang import QWEN3_VL
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES

_GRAPHS = AllOf(Given("$SGLANG_VIT_ENABLE_CUDA_GRAPH"), Is("architecture", *QWEN3_VL))

BUG = KnownBug(
    id="sglang.ascend-vision-lengths",
    title="Several images at once end the server on Ascend: the vision encoder gets lengths, not their sums",
    symptom="npu_fused_infer_attention_score: queryT must be equal to the last element of actualSequenceLengthQ.",
    symptoms=(DIES, IMAGES),
    releases=(">=0.5.14,<0.5.17",),
    code=("sglang.srt.layers.attention.vision:VisionAscendAttention.forward",),
    upstream=Upstream("sgl-project/sglang", pull=31867),
    harm=CRASH,
    hits=AllOf(
        Is("--mm-attention-backend", "ascend_attn"),
        AnyOf(AllOf(Not(Since("0.5.16")), _GRAPHS), AllOf(Since("0.5.16"), Not(_GRAPHS))),
        Unseen("whether several images, frames or windows are encoded at once"),
    ),
    avoid="Leave --mm-attention-backend and SGLANG_VIT_ENABLE_CUDA_GRAPH out.",
)
