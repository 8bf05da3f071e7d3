"""vllm.dsv4-indexer-buffer, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="vllm.dsv4-indexer-buffer",
    title="DeepSeek-V4 selects context by uninitialised keys where a step prefills very many tokens in all",
    symptom="Answers to long prompts are wrong now and then, where some forty or more are prefilled together.",
    symptoms=(LONG_PROMPT, SHARED_BATCH),
    releases=(">=0.20.0,<0.32.0",),
    code=("vllm.v1.attention.backends.mla.indexer:DeepseekV32IndexerMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=51252),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration", "DeepseekV41ForCausalLM"),
        AnyOf(Is("--max-num-seqs", OFF), Above("--max-num-seqs", 40)),
        Unseen("a step whose prompts, with what is cached of them, are longer than 40 times --max-model-len in all"),
    ),
    avoid="Start with `--max-num-seqs 40`: so many prompts fit the buffer, whatever their length.",
)
