"""vllm.gdn-token-order, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-token-order",
    title="Tokens change places in small steps that verify drafts beside other requests (Gated DeltaNet)",
    symptom=(
        "With drafts, text of Qwen3-Next turns wrong after a step of at most 32 tokens. It verifies drafts beside a prompt, or "
        "beside a request without drafts. Longer steps happen to keep their order on NVIDIA GPUs."
    ),
    symptoms=(SPECULATION, GARBAGE, SHARED_BATCH),
    releases=(">=0.11.1,<0.13.0",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("linear attention", ON), Is("speculative decoding", ON)),
    avoid="Take release 0.13.0, or serve without speculative decoding.",
)
