"""vllm.gdn-token-order, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_GDN = "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.gdn-token-order",
    title="Garbage where short prompts start beside drafts: a state reads tokens in a wrong order (Gated DeltaNet)",
    symptom=(
        "With speculative decoding, a model with Gated DeltaNet layers (Qwen3-Next) gives wrong or endless text. A short "
        "prompt that starts beside running requests is hit, and so are these: in steps of up to 32 tokens. No error."
    ),
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    cause=(
        "Tokens of verified drafts and of other requests are parted by a sort of equal keys. PyTorch's sort of up to 32 keys "
        "on a GPU keeps no order among them, so that layers read a request's tokens in another order."
    ),
    correction="The sort keeps the order, as upstream's does from 0.13.0. It takes no longer on a GPU.",
    upstream=Upstream("vllm-project/vllm", pull=30632, issue=30631),
    hardware="any GPU (models with Gated DeltaNet layers and speculative decoding)",
    default=True,
    default_reason="silent wrong output; upstream corrected the same in 0.13.0",
    targets=(Target(wrap.build, needed=wrap.drafts_beside_others, paths=(f"{_GDN}.build",)),),
    remove_when="no vLLM below 0.13.0 is served with Gated DeltaNet and speculative decoding",
    cost="A few µs of host time per step of a model with Gated DeltaNet and speculative decoding; none otherwise.",
    avoid="Leave `--speculative-config` out, or take release 0.13.0.",
    expect=(
        "On one replica with MTP, send prompts of ten tokens while another answer is generated. Fixed, each greedy answer "
        "becomes that of the prompt sent alone."
    ),
    hits=AllOf(Is("model runner", "V1"), Is("linear attention", ON), Is("speculative decoding", ON)),
)
