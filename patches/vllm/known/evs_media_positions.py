"""vllm.evs-media-positions, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

_QWEN2_5 = "Qwen2_5_VLForConditionalGeneration", "Exaone4_5_ForConditionalGeneration", "OpenCUAForConditionalGeneration"
_QWEN3 = "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "Cosmos3ForConditionalGeneration"
_QWEN3_5 = (
    *("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
    *("InternS2PreviewForConditionalGeneration", "InternS2MobiusForConditionalGeneration"),
)
BUG = KnownBug(
    id="vllm.evs-media-positions",
    title="A second image or video is misread with --video-pruning-rate: the first one gets its positions",
    symptom="Where two media follow a long text in one step, a cursor without the text finds the first one again.",
    symptoms=(IMAGES,),
    releases=(">=0.11.0,<=0.33.0",),
    code=(
        "vllm.multimodal.evs:recompute_mrope_positions",
        "vllm.multimodal.video_prune.evs:recompute_mrope_positions",
    ),
    upstream=Upstream("vllm-project/vllm", pull=48835),
    hits=AllOf(
        Given("--video-pruning-rate"),
        Is("M-RoPE", ON),
        AnyOf(
            AllOf(Since("0.13.0"), Is("architecture", *_QWEN3, "CohereCompassForConditionalGeneration", "Alpamayo2Super")),
            AllOf(Since("0.27.0"), Is("architecture", *_QWEN3_5)),
            Is("architecture", *_QWEN2_5),
        ),
        Unseen("two images or videos in one step, behind text of more tokens than the first of them has"),
    ),
    avoid="Start without `--video-pruning-rate`.",
)
