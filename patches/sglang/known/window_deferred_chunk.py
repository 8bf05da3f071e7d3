"""sglang.window-deferred-chunk, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="sglang.window-deferred-chunk",
    title="A crash, or a cached prefix that nobody computed, when the pool of window layers is full",
    symptom="Under load the server of a window model dies in a step without tokens. Prefix hits may be wrong before.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.5.11,<0.5.12",),
    code=("sglang.srt.managers.scheduler:Scheduler.get_next_batch_to_run",),
    upstream=Upstream("sgl-project/sglang", pull=24318, issue=24252),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Not(Is("--chunked-prefill-size", "-1")),
        Unseen("whether the pool of window layers runs full while a prompt comes in chunks"),
    ),
    avoid="Raise `--swa-full-tokens-ratio`, or set `--disable-hybrid-swa-memory`.",
    harm=CRASH,
)
