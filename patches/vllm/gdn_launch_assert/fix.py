"""vllm.gdn-launch-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_GDN = "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.gdn-launch-assert",
    title="Crash when a token without drafts meets verified drafts (Gated DeltaNet)",
    symptom=(
        "With speculative decoding, the engine of a model with Gated DeltaNet layers (Qwen3-Next, Qwen3.5) dies of an "
        "AssertionError in gdn_attn.py, which names num_decodes and num_spec_decodes. It comes when drafts of one request are "
        "verified beside another request with a single token to compute and no drafts. The last token of a prompt is such a "
        "token."
    ),
    symptoms=(DIES, SPECULATION),
    cause=(
        "Metadata of a step has either decodes or verified drafts. A request with one token counts as a decode, whatever its "
        "token is. Beside verified drafts both are there, and an assertion refuses that."
    ),
    correction=(
        "Such a request counts as a prefill of one token, which gives the same result. A request whose drafts of the last step "
        "were accepted is left alone: its state is in another block than a prefill reads, and the engine ends as before."
    ),
    upstream=Upstream("vllm-project/vllm", pull=34871, issue=34845),
    hardware="any GPU (models with Gated DeltaNet layers and speculative decoding)",
    default=True,
    default_reason="the engine dies; 0.18.0 counts such requests in the same way",
    targets=(
        Target(
            wrap.build,
            needed=wrap.single_tokens_beside_drafts,
            paths=(f"{_GDN}.build",),
        ),
    ),
    # Which blocks are read, and what a prefill gets
    witnesses=(
        f"{_GDN}.__init__",
        "vllm.v1.attention.backends.utils:mamba_get_block_table_tensor",
        "vllm.v1.attention.backends.utils:compute_causal_conv1d_metadata",
        "vllm.v1.attention.backends.utils:split_decodes_and_prefills",
        "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata",
        "vllm.v1.attention.backend:CommonAttentionMetadata",
    ),
    remove_when="no vLLM below 0.18.0 is served with Gated DeltaNet and speculative decoding",
    cost=(
        "A few µs of host time per step of a model with Gated DeltaNet and speculative decoding. A step that is corrected "
        "waits for the device once; stock, it ends the engine."
    ),
    avoid=(
        "Nothing short of 0.18.0 but serving without drafts does; `--no-enable-chunked-prefill` removes the common "
        "cause, a last chunk of one token."
    ),
    expect=(
        "On one replica with MTP, send prompts that are one token longer than --max-num-batched-tokens while another answer is "
        "generated: stock the engine dies, fixed all answers come."
    ),
    harm=CRASH,
    hits=AllOf(Is("linear attention", ON), Is("speculative decoding", ON)),
)
