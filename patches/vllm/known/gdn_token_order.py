"""vllm.gdn-token-order, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-token-order",
    title="Garbage where short prompts start beside drafts: a state reads tokens in a wrong order (GDN)",
    symptom=(
        "With MTP, a short prompt that starts beside running requests gets wrong or endless text, and so do these. The sort "
        "that parts drafts from prompts keeps no order in steps of up to 32 tokens."
    ),
    symptoms=(SPECULATION, SHARED_BATCH, GARBAGE),
    releases=(">=0.11.1,<0.13.0",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", pull=30632, issue=30631),
    hits=AllOf(
        AllOf(Is("model runner", "V1"), Is("linear attention", ON)),
        Is("speculative decoding", ON),
        Unseen("a step of at most 32 tokens that holds both drafts and a prompt"),
    ),
    avoid="Leave `--speculative-config` out.",
)
