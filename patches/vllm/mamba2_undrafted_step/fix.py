"""vllm.mamba2-undrafted-step, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_BACKENDS = "vllm.v1.attention.backends"

FIX = Fix(
    id="vllm.mamba2-undrafted-step",
    title="The server dies at a decode step in which nobody has drafts (Mamba2 with speculative decoding)",
    symptom=(
        "With n-gram or suffix drafts, a NemotronH ends at the first such step, with an AssertionError in mamba_attn.py. MTP "
        "ends where a grammar refuses each first draft, or at the last token of a prompt."
    ),
    symptoms=(DIES, SPECULATION),
    cause=(
        "On a server with drafts, the builder of Mamba2 wants numbers of accepted drafts for each decode. The runner tells "
        "them in steps in which somebody has drafts."
    ),
    correction=(
        "In such a step the runner tells them, too, and decodes are verifications of one token. They go on from the state "
        "behind their accepted drafts, which 0.19-0.31 does not look at. A step stays as it is where a decode behind accepted "
        "drafts stands behind a longer row, where a prompt of one token begins, and with `mamba_cache_mode` all."
    ),
    upstream=Upstream("vllm-project/vllm", pull=56531),
    hardware="any GPU (models with Mamba2 layers and speculative decoding)",
    default_reason="upstream corrected the crash otherwise: 0.19 goes on from another state",
    harm=CRASH,
    targets=(
        Target(
            wrap.build_attention_metadata,
            needed=wrap.decodes_without_drafts,
            paths=(f"{_RUNNER}._build_attention_metadata",),
        ),
    ),
    # Numbers of drafts in the runner, and their reading in the builder
    witnesses=(
        f"{_RUNNER}._prepare_inputs",
        f"{_RUNNER}.execute_model",
        f"{_RUNNER}._update_states_after_model_execute",
        f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
    ),
    cost="Some µs of host time in a step without drafts of a server with drafts, and a copy of one number for each request.",
    avoid="Take release 0.19.0, or serve without speculative decoding.",
    expect="On one replica with n-gram drafts, ask a NemotronH for text that is not in its prompt. Fixed, it answers.",
    hits=AllOf(Is("Mamba2 layers", ON), Is("speculative decoding", ON)),
)
