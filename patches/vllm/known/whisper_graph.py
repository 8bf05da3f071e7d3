"""vllm.whisper-graph, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

#: Encoder-decoder models have full graphs of decodes in each other mode, too
_GRAPHS = Not(
    AnyOf(
        Is("--enforce-eager", ON),
        Is("--optimization-level", "0"),
        Is("--compilation-config.cudagraph_mode", "NONE", "none"),
    )
)

BUG = KnownBug(
    id="vllm.whisper-graph",
    title="Whisper writes down what nobody said: decode graphs leave the recording out (FlashAttention 2)",
    symptom="Transcripts are wrong from the second token on. Graphs are captured with an encoder length of 0.",
    symptoms=(GRAPHS, GARBAGE),
    releases=(">=0.13.0,<0.15.0",),
    code=(
        "vllm.v1.attention.backends.flash_attn:FlashAttentionMetadataBuilder.get_cudagraph_support",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._get_encoder_seq_lens",
    ),
    upstream=Upstream("vllm-project/vllm", issue=33091, pull=33360),
    hits=AllOf(
        Is("architecture", "WhisperForConditionalGeneration", "NemotronParseForConditionalGeneration"),
        AllOf(Is("attention backend", "FLASH_ATTN"), _GRAPHS, Is("GPU", "NVIDIA")),
        AnyOf(
            Not(Is("compute capability", 90)),
            AnyOf(Is("--attention-config.flash_attn_version", 2, "2"), Is("$VLLM_FLASH_ATTN_VERSION", 2, "2")),
        ),
        AnyOf(
            Is("compute capability", 100, 103),
            Not(AnyOf(Is("--attention-config.flash_attn_version", 3, "3"), Is("$VLLM_FLASH_ATTN_VERSION", 3, "3"))),
        ),
    ),
    avoid="Start with `--enforce-eager`.",
)
