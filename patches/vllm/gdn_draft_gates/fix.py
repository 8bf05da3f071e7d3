"""vllm.gdn-draft-gates, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_LAYERS = (
    "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn:QwenGatedDeltaNetAttention",
    "vllm.model_executor.layers.mamba.gdn_linear_attn:GatedDeltaNetAttention",
    "vllm.model_executor.models.qwen3_next:Qwen3NextGatedDeltaNet",
)

FIX = Fix(
    id="vllm.gdn-draft-gates",
    title="Answers with drafts derail beside a request without any (Gated DeltaNet): gates of other tokens",
    symptom="Under load, answers of Qwen3-Next and Qwen3.5 derail where a step verifies drafts of some requests alone.",
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    cause=(
        "A step with other requests picks out queries, keys and values of verified tokens, but not their gates: the kernel "
        "takes those from the front of the batch. They are right only where verified requests stand before all others."
    ),
    correction=(
        "Where a verified request stands behind another one, the layers' kernel gets the gates of its own tokens, as in "
        "0.28.0. Steps in which verified requests stand first stay as they are."
    ),
    upstream=Upstream("vllm-project/vllm", pull=36754),
    hardware="any GPU (Qwen3-Next and Qwen3.5 with speculative decoding)",
    default=True,
    default_reason="silent wrong output; upstream corrected the same in 0.28.0",
    targets=(
        Target(
            wrap.build,
            needed=wrap.verified_behind_others,
            paths=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
        ),
        Target(wrap.forward_core, needed=wrap.is_marked, paths=tuple(f"{layer}._forward_core" for layer in _LAYERS)),
    ),
    cost=(
        "Two small launches a layer in a step that it corrects. In other steps, some µs of host time per step, and about one "
        "per layer outside graphs."
    ),
    look_does="The look of a layer goes by what the correction of the step's metadata has left there.",
    avoid="Leave `--speculative-config` out, or take release 0.28.0.",
    expect=(
        "On one replica with n-gram drafts, several greedy requests at once get the answers that they get alone, but for sums "
        "in another order."
    ),
    hits=AllOf(
        AnyOf(
            Is("architecture", "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            Is("architecture", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration"),
            Is("architecture", "MiniCPMV4_6ForConditionalGeneration"),
        ),
        Is("speculative decoding", ON),
    ),
)
