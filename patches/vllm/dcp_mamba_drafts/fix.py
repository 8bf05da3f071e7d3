"""vllm.dcp-mamba-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_BACKENDS = "vllm.v1.attention.backends"
_BASE = f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.dcp-mamba-drafts",
    title="Mamba2 hybrids with drafts go wrong after a rejected draft under decode context parallelism",
    symptom=(
        "With `--decode-context-parallel-size` above 1, states of Mamba2 layers take in rejected drafts: all later tokens are "
        "wrong."
    ),
    symptoms=(PARALLEL, SPECULATION, GARBAGE),
    cause=(
        "Under DCP, a builder of metadata counts rows of one token alone as decodes, unless its attention takes more. The "
        "builder of Mamba2 does so, too, whose layers have a whole state on each rank. A verification is a prefill then: it "
        "begins with the first state, and leaves one, behind all drafts."
    ),
    correction="The builder of Mamba2 counts decodes as without DCP: rows up to the length of a verification.",
    upstream=Upstream("vllm-project/vllm", issue=55894, report="vllm-dcp-mamba-drafts"),
    hardware="any GPU, two or more (models with Mamba2 layers; --decode-context-parallel-size above 1 with drafts)",
    default_reason="no release corrects it, and it has not been seen with real kernels",
    targets=(
        Target(
            wrap.init_reorder_batch_threshold,
            needed=wrap.is_mamba2_under_dcp,
            paths=("vllm.v1.attention.backend:AttentionMetadataBuilder._init_reorder_batch_threshold",),
        ),
    ),
    # Who asks for the threshold, who sorts by it, and who splits rows by it
    witnesses=(
        f"{_BASE}.__init__",
        f"{_BASE}.build_for_cudagraph_capture",
        f"{_BASE}._compute_common_metadata",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.__init__",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        f"{_BACKENDS}.utils:reorder_batch_to_split_decodes_and_prefills",
        f"{_RUNNER}.calculate_reorder_batch_threshold",
        f"{_RUNNER}._may_reorder_batch",
        f"{_RUNNER}._build_attention_metadata",
    ),
    remove_when="a release of vLLM verifies drafts in layers of Mamba2 under DCP",
    cost=(
        "None while it serves. Verifications run by the kernels of decodes, and in full CUDA graphs. With FLASHINFER and the "
        "V1 model runner, a verification that stands behind a chunk of a prompt stays as it is."
    ),
    avoid="Serve without drafts, or without `--decode-context-parallel-size`.",
    expect=(
        "On one replica with DCP and MTP, ask a NemotronH for a long answer at temperature 0: fixed, it agrees with that of a "
        "server without drafts."
    ),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Above("decode context parallel size", 1),
        Is("speculative decoding", ON),
    ),
    ranks_alike=True,
)
