"""sglang.ascend-vit-graph-key, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.doctor.sglang import QWEN3_VL
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, IMAGES

BUG = KnownBug(
    id="sglang.ascend-vit-graph-key",
    title="The first image ends the server on Ascend where the vision encoder runs in graphs",
    symptom="TypeError: _get_graph_key() missing 2 required positional arguments: 'cu_seqlens' and 'cu_window_seqlens'.",
    symptoms=(DIES, GRAPHS, IMAGES),
    releases=(">=0.5.19,<0.5.20",),
    code=("sglang.srt.hardware_backend.npu.graph_runner.vit_npu_graph_runner:ViTNpuGraphRunner.run",),
    upstream=Upstream("sgl-project/sglang", pull=37758),
    harm=CRASH,
    hits=AllOf(
        AnyOf(Is("--device", "npu"), Is("prefill backend", "ascend")),
        Given("$SGLANG_VIT_ENABLE_CUDA_GRAPH"),
        Is("architecture", *QWEN3_VL),
        Unseen("whether prompts have images"),
    ),
    avoid="Leave SGLANG_VIT_ENABLE_CUDA_GRAPH unset.",
)
