"""sglang.window-deferred-chunk, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

from . import wrap

_MANAGERS = "sglang.srt.managers"
_SCHEDULER = f"{_MANAGERS}.scheduler:Scheduler"

FIX = Fix(
    id="sglang.window-deferred-chunk",
    title="A crash, or a cached prefix that nobody computed, when the pool of window layers is full",
    symptom=(
        "Under load, the server of a window model ends in a step without tokens while a long prompt is read. Prefix hits may "
        "be wrong before. From 0.5.12 on it is so on prefill servers alone."
    ),
    symptoms=(DIES, CACHED_PREFIX),
    cause=(
        "A chunk of a prompt is put off where window layers lack slots for it. The next turn caches the prompt nevertheless, "
        "all of it: what comes behind its last chunk has slots that hold KV of others."
    ),
    correction="A prompt whose chunk is put off is cached as far as it is computed, as it was after its last chunk.",
    upstream=Upstream("sgl-project/sglang", pull=24318, issue=24252),
    hardware="any GPU (models with a pool of window layers)",
    default=True,
    default_reason="a crash or garbage; upstream has released the same, and chunks that are not put off are left alone",
    targets=(
        Target(
            wrap.add_chunked_req,
            needed=wrap.has_window_slots,
            paths=(f"{_MANAGERS}.schedule_policy:PrefillAdder.add_chunked_req",),
        ),
    ),
    # Caching of a chunk, and its time
    witnesses=(
        f"{_MANAGERS}.schedule_policy:PrefillAdder",
        f"{_SCHEDULER}.get_next_batch_to_run",
        f"{_SCHEDULER}._get_new_batch_prefill_raw",
        f"{_SCHEDULER}.stash_chunked_request",
        "sglang.srt.disaggregation.prefill:SchedulerDisaggregationPrefillMixin.process_prefill_chunk",
    ),
    cost="A comparison for each chunk of a prompt.",
    avoid="Raise `--swa-full-tokens-ratio`, or set `--disable-hybrid-swa-memory`.",
    expect="On one replica whose window pool runs full, long prompts among many requests: a server that has ended so goes on.",
    ranks_alike=True,  # which prefixes are cached follows from it
    harm=CRASH,
    hits=AllOf(Is("sliding-window KV pool", ON), Is("prompts in chunks", ON), Is("prompts cached in each turn", ON)),
)
