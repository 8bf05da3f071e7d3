"""sglang.mamba-freed-verify, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

from . import wrap

_BATCH = "sglang.srt.managers.schedule_batch"
_POOL = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"

FIX = Fix(
    id="sglang.mamba-freed-verify",
    title="Drafts of a request that has ended overwrite a cached state of a hybrid model, or end the server",
    symptom=(
        "Structured output with drafts ends a hybrid model's server ('NoneType' object cannot be interpreted as an integer), "
        "or a follow-up turn is wrong."
    ),
    symptoms=(DIES, CACHED_PREFIX, SPECULATION),
    cause=(
        "With a grammar, the scheduler prepares a verification, and only then processes the last result. A request that ends "
        "with it has given up its two buffers of states. Up to 0.5.15.post1, the number of its next buffer is missing. From "
        "0.5.16 on, its first buffer is written, which the radix cache may have taken over."
    ),
    correction="The verification of a request that has ended writes its state into slot 0 of the pool, which is nobody's.",
    upstream=Upstream("sgl-project/sglang", pull=29449, issue=28484),
    hardware="any GPU (hybrid models with speculative decoding, the radix cache and the overlap scheduler)",
    default=True,
    default_reason="a crash, then silent wrong output; upstream has released the same",
    targets=(
        Target(
            wrap.set_mamba_track_indices_from_reqs,
            needed=wrap.ended,
            paths=(f"{_BATCH}:set_mamba_track_indices_from_reqs",),
        ),
    ),
    # What an end does to the numbers of buffers, and which buffer the cache keeps
    witnesses=(
        f"{_POOL}.free_mamba_cache",
        f"{_POOL}.get_mamba_ping_pong_keep_idx",
        f"{_POOL}.get_mamba_ping_pong_other_idx",
    ),
    ranks_alike=True,
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Is("requests end before they are verified", ON),
    ),
    cost="A look at a host number for each request of a verification; a fill of one number for each that has ended.",
    avoid="Set --disable-overlap-schedule, or serve without speculation.",
    expect=(
        "On one replica, end requests of structured output with drafts, and continue their conversations: up to 0.5.15.post1 "
        "stock ends with the first; later, answers differ now and then from those with --disable-radix-cache."
    ),
)
