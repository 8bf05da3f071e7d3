"""vllm.padded-context-limit, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

BUG = KnownBug(
    id="vllm.padded-context-limit",
    title="A prompt near the context length ends the server, or waits with all behind it (drafts)",
    symptom=(
        "Beside other requests, a cached prompt within the number of drafts of `--max-model-len` is scheduled with a negative "
        "count, or never."
    ),
    symptoms=(CONTEXT_LIMIT, DIES, SPECULATION),
    releases=(">=0.25.0,<0.29.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=53962),
    hits=AllOf(
        Is("speculative decoding", ON),
        Not(Given("--speculative-config.num_speculative_tokens_per_batch_size")),
        Unseen("a prompt near the context length of which all tokens but one are cached or come through a KV connector"),
    ),
    avoid="Raise `--max-model-len` by more than the number of drafts above the longest prompt.",
    harm=CRASH,
)
