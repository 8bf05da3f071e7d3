"""vllm.dsa-table-width, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.dsa-table-width",
    title="The engine dies at a decode with several drafts (sparse attention of DeepSeek-V3.2 and GLM-5)",
    symptom="`The expanded size of the tensor … must match the existing size`: the indexer's block table lacks a column.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.21.0,<0.27.0",),
    code=("vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm", issue=46074, pull=50302),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        Is("draft tokens of a step", "several"),
        Not(Is("compute capability", 100, 103)),
        Unseen("a maximum length of an odd number of blocks, and a step whose requests have unlike numbers of drafts"),
    ),
    avoid="Start with a `--max-model-len` that 128 divides.",
)
