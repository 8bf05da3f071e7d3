"""sglang.mamba-snapshot-race, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.mamba-snapshot-race",
    title="Hybrid models cache the state of a prompt before it is complete (extra_buffer, overlap)",
    symptom="Answers on a prefix hit differ from those without one, now and then, after prompts that came in chunks.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.7,<0.5.13",),
    code=("sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache.cache_unfinished_req",),
    upstream=Upstream("sgl-project/sglang", pull=24954, issue=24221),
    hits=AllOf(
        Is("recurrent layers", "on"),
        Is("--mamba-radix-cache-strategy", "extra_buffer"),
        Is("--disable-overlap-schedule", "off"),
        Unseen("whether a chunk of a prompt is still being computed when its state is copied"),
    ),
    avoid="Leave --mamba-scheduler-strategy out, or set --disable-overlap-schedule.",
)
