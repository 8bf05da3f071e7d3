"""vllm.gdn-draft-conv-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

FIX = Fix(
    id="vllm.gdn-draft-conv-slots",
    title="Qwen3-Next with MTP mixes up prompts that are prefilled in one step",
    symptom="Answers are garbage where two prompts start together: convolutions of the second use a state slot of the first.",
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    cause=(
        "With drafts, a request has a row of state slots, and the first of each row is a view with gaps. The kernel of a "
        "prefill's convolution reads slots one behind the other, so that it finds those of the first request's drafts."
    ),
    correction="In a step with prefills and without verified drafts, the view is copied to memory without gaps.",
    upstream=Upstream("vllm-project/vllm", pull=24957),
    hardware="any GPU (Qwen3-Next with speculative decoding)",
    default=True,
    default_reason="silent wrong output; from 0.11.0 the kernel is told how far apart the slots lie",
    targets=(
        Target(
            wrap.build,
            needed=wrap.may_prefill_several,
            paths=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
        ),
    ),
    # Whether the kernel is told how far apart the slots lie, who hands them over, and how many a request has
    witnesses=(
        "vllm.model_executor.layers.mamba.ops.causal_conv1d:causal_conv1d_fn",
        "vllm.model_executor.models.qwen3_next:Qwen3NextGatedDeltaNet._forward",
        "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata",
        "vllm.v1.attention.backends.utils:split_decodes_and_prefills",
        "vllm.v1.worker.block_table:MultiGroupBlockTable",
    ),
    cost="One launch for a copy of a few numbers, in a step with prefills of a server with drafts; none otherwise.",
    avoid="Leave `--speculative-config` out, or take release 0.11.0.",
    expect="On one replica with MTP, send two prompts at once. Fixed, each greedy answer becomes that of the prompt alone.",
    hits=AllOf(Is("linear attention", ON), Is("speculative decoding", ON)),
)
