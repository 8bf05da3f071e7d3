"""vllm.ngram-recurrent-state, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.ngram-recurrent-state",
    title="N-gram drafts corrupt Qwen3-Next and Qwen3.5: a step without drafts goes on from an older state",
    symptom="Text drifts, repeats itself or loses words with n-gram speculation, and is right without it.",
    symptoms=(SPECULATION, GARBAGE),
    releases=(">=0.11.0,<0.32.0",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", pull=56531, issue=40875),
    hits=AllOf(
        Is("linear attention", ON),
        Is("--speculative-config.method", "ngram", "ngram_gpu"),
        AnyOf(Is("cached prefixes of a hybrid model", OFF), Unseen("whether the cache of states moves the accepted one")),
    ),
    avoid="Start without `--speculative-config`, or with the model's own MTP drafter, which drafts in each step.",
)
