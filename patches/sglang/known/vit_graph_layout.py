"""sglang.vit-graph-layout, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, IMAGES

BUG = KnownBug(
    id="sglang.vit-graph-layout",
    title="Images are misread with CUDA graphs of the vision encoder: replays keep the bounds of older images",
    symptom="Qwen-VL misreads images after others of as many patches in all, or after a larger one.",
    symptoms=(GRAPHS, IMAGES),
    releases=(">=0.5.7,<0.5.19",),
    code=("sglang.srt.multimodal.vit_cuda_graph_runner:ViTCudaGraphRunner._get_graph_key",),
    upstream=Upstream("sgl-project/sglang", pull=37043, issue=29216),
    hits=AllOf(
        Is(
            "architecture",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
            "Qwen3OmniMoeForConditionalGeneration",
            "InternS2PreviewForConditionalGeneration",
        ),
        Given("$SGLANG_VIT_ENABLE_CUDA_GRAPH"),
        Unseen("whether prompts have images"),
    ),
    avoid="Leave SGLANG_VIT_ENABLE_CUDA_GRAPH unset.",
)
