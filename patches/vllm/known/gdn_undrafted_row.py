"""vllm.gdn-undrafted-row, as data. Later releases: vllm.undrafted-hybrid-row."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-undrafted-row",
    title="Qwen3-Next repeats or loses words where a request has no drafts in a step",
    symptom=(
        "A request decodes without drafts behind a step whose drafts were accepted. It goes on from the state before them, and "
        "repeats words, loses them or turns into garbage."
    ),
    symptoms=(SPECULATION, GARBAGE),
    releases=(">=0.10.2,<0.11.1",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", issue=39273),
    hits=AllOf(
        Is("linear attention", ON),
        Is("speculative decoding", ON),
        AnyOf(Is("--speculative-config.method", "ngram"), Unseen("a decode without drafts, as where a grammar refuses them")),
    ),
    avoid="Serve without speculative decoding.",
)
