"""vllm.gdn-draft-gates, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-draft-gates",
    title="Answers with drafts derail beside a request without any (Gated DeltaNet): gates of other tokens",
    symptom="Under load, answers of Qwen3-Next and Qwen3.5 derail where a step verifies drafts of some requests alone.",
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    releases=(">=0.18.0,<0.28.0",),
    code=(
        "vllm.model_executor.models.qwen3_next:Qwen3NextGatedDeltaNet._forward_core",
        "vllm.model_executor.layers.mamba.gdn_linear_attn:GatedDeltaNetAttention._forward_core",
        "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn:QwenGatedDeltaNetAttention._forward_core",
    ),
    upstream=Upstream("vllm-project/vllm", pull=36754),
    hits=AllOf(
        AnyOf(
            Is("architecture", "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            Is("architecture", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration"),
            Is("architecture", "MiniCPMV4_6ForConditionalGeneration"),
        ),
        Is("speculative decoding", ON),
        Unseen("a decode without drafts in the same step, as of ngram drafters and of structured outputs"),
    ),
    avoid="Start without `--speculative-config`.",
)
