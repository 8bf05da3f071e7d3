"""vllm.mamba2-short-chunk, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_BACKENDS = "vllm.v1.attention.backends"
_BASE = f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder"
_BUILDER = f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder"

FIX = Fix(
    id="vllm.mamba2-short-chunk",
    title="A prompt forgets its last tokens beside verified drafts (Mamba2, speculative decoding)",
    symptom="Answers are garbage where a prompt, or its last chunk, is as short as a step with drafts.",
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    cause=(
        "In a step with drafts, the builder of Mamba2 takes each row up to the length of a verification for one. A "
        "verification leaves a state behind each token, and the request goes on from that behind the first. A new prompt "
        "begins with the state that its block's last owner left."
    ),
    correction=(
        "Rows that verify drafts, or have one token, stand before all others, and the others are prompts to the builder. A "
        "step with such a prompt is no uniform decode, so no full graph is replayed for it."
    ),
    upstream=Upstream("vllm-project/vllm", pull=35447),
    hardware="any GPU (models with Mamba2 layers and speculative decoding)",
    default=True,
    default_reason="silent wrong output; upstream corrected the same in 0.19.0",
    targets=(
        Target(
            wrap.may_reorder_batch,
            needed=wrap.has_a_short_prompt,
            paths=(f"{_RUNNER}._may_reorder_batch",),
        ),
        Target(
            wrap.determine_batch_execution_and_padding,
            needed=wrap.has_the_shape_of_verifications,
            paths=(f"{_RUNNER}._determine_batch_execution_and_padding",),
        ),
        Target(wrap.build, needed=wrap.verifications, paths=(f"{_BUILDER}.build",)),
        Target(wrap.compute_common_metadata, needed=wrap.is_told, paths=(f"{_BASE}._compute_common_metadata",)),
    ),
    # Where a step's drafts are counted, and who splits its rows
    witnesses=(
        f"{_RUNNER}._prepare_inputs",
        f"{_RUNNER}._build_attention_metadata",
        f"{_RUNNER}._is_uniform_decode",
        f"{_RUNNER}._update_states_after_model_execute",
        f"{_BASE}.__init__",
        f"{_BASE}._update_metadata_for_cudagraph_capture",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        f"{_BACKENDS}.utils:reorder_batch_to_split_decodes_and_prefills",
    ),
    cost=(
        "A few µs of host time per step of a server with drafts. A short prompt runs by the kernels of prefills, and its step "
        "without a full graph."
    ),
    look_does=(
        "Its look keeps what it found on an object of the engine. One goes by what the correction of the builder left there."
    ),
    avoid="Leave out --speculative-config.",
    expect=(
        "On one replica with MTP, ask for a long answer, and beside it /v1/completions for a prompt of three tokens. Fixed, "
        "its answer is that of the prompt alone."
    ),
    hits=AllOf(Is("Mamba2 layers", ON), Is("speculative decoding", ON)),
    ranks_alike=True,
)
