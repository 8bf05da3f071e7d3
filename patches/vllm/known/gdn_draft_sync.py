"""vllm.gdn-draft-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.gdn-draft-sync",
    title="Each step with drafts waits for the GPU (Gated DeltaNet, speculative decoding)",
    symptom="Throughput is lower than necessary with drafts: masks on the GPU select rows, and each selection waits for it.",
    symptoms=(SLOW,),
    releases=(">=0.10.2,<0.20.0",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", pull=38047),
    hits=AllOf(
        Is("linear attention", ON),
        Is("speculative decoding", ON),
    ),
    avoid="Nothing within the release avoids it; take release 0.20.0.",
    harm=SLOWER,
)
