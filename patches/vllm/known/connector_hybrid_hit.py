"""vllm.connector-hybrid-hit, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, GARBAGE

BUG = KnownBug(
    id="vllm.connector-hybrid-hit",
    title="Follow-up turns are garbage with a KV connector (hybrid models): a prefix counts without its state",
    symptom="A prefix hit goes as far as attention or states alone reach: the rest is stale, or the engine dies.",
    symptoms=(CACHED_PREFIX, GARBAGE, DIES),
    releases=(">=0.24.0,<0.27.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", issue=46453),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        Is("KV connector", ON),
        Unseen("a prefix of which attention and states are cached unequally far, and of which the connector brings nothing"),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without a KV connector.",
)
