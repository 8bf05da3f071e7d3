"""vllm.dsa-short-draft-step, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.dsa-short-draft-step",
    title="A step of fewer drafts than usual ends the server (sparse attention of DeepSeek and GLM, MTP)",
    symptom="DeepGEMM's `context_lens.is_contiguous()` fails as the metadata of a decode are built.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.20.0,<0.22.0",),
    code=("vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder._prepare_decode_tensors",),
    upstream=Upstream("vllm-project/vllm", pull=42135, issue=40987),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "DeepseekV4ForCausalLM"),
        Is("GPU", "NVIDIA"),
        Is("speculative decoding", ON),
        AnyOf(
            AllOf(Is("compute capability", 100, 103), Not(Given("--attention-config.use_fp4_indexer_cache"))),
            Is("draft tokens of a step", "one"),
        ),
        Unseen("a step of several decodes, none of which has all the drafts it may have"),
    ),
    avoid="Start without `--speculative-config`.",
    harm=CRASH,
)
