"""vllm.mamba2-undrafted-step, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.mamba2-undrafted-step",
    title="The server dies at a decode step in which nobody has drafts (Mamba2 with speculative decoding)",
    symptom=(
        "With n-gram or suffix drafts, a NemotronH ends at the first such step, with an AssertionError in mamba_attn.py. MTP "
        "ends where a grammar refuses each first draft, or at the last token of a prompt."
    ),
    symptoms=(DIES, SPECULATION),
    releases=(">=0.17.0,<0.19.0",),
    code=("vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Is("speculative decoding", ON),
        AnyOf(Is("--speculative-config.method", "ngram", "suffix"), Unseen("a decode step in which nobody has drafts")),
    ),
    avoid="Take release 0.19.0, or serve without speculative decoding.",
    harm=CRASH,
)
