"""sglang.mamba-abort-leak, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, GARBAGE

from . import wrap

_CACHE, _SCHEDULER = "sglang.srt.mem_cache", "sglang.srt.managers.scheduler:Scheduler"

FIX = Fix(
    id="sglang.mamba-abort-leak",
    title="Hybrid models lose the state of a prompt that waits for memory, or begin it with a state of nobody",
    symptom=(
        "Prompts with a cached prefix, which wait under load, are answered wrongly. If a client gives one up, an idle server "
        "ends with a memory leak."
    ),
    symptoms=(GARBAGE, CACHED_PREFIX, DIES),
    cause=(
        "A prompt with a cached prefix gets a copy of its state before it is known whether there is room. If it has to wait, "
        "it keeps the copy. It begins with that even if the prefix was evicted meanwhile. If it is dropped, the copy is never "
        "freed: up to 0.5.4.post3 by an abort, later by a full queue or a timeout."
    ),
    correction="A prompt that has to wait gives its copy back, and gets another one when it is tried again.",
    upstream=Upstream("sgl-project/sglang", pull=16067, issue=15840),
    hardware="any GPU (hybrid models with the radix cache)",
    default=True,
    default_reason="upstream has released the same",
    targets=(
        Target(
            wrap.add_one_req,
            needed=wrap.has_a_copy,
            paths=("sglang.srt.managers.schedule_policy:PrefillAdder.add_one_req",),
        ),
    ),
    # The copy, its owner and its end; who tries prompts, and who drops them
    witnesses=(
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache.match_prefix",
        f"{_CACHE}.mamba_radix_cache:MambaRadixCache._match_post_processor",
        f"{_CACHE}.memory_pool:MambaPool.alloc",
        f"{_CACHE}.memory_pool:MambaPool.free",
        f"{_CACHE}.memory_pool:HybridReqToTokenPool.alloc",
        f"{_SCHEDULER}.get_new_batch_prefill",
        f"{_SCHEDULER}._get_new_batch_prefill_raw",
        f"{_SCHEDULER}.abort_request",
        f"{_SCHEDULER}._abort_on_queued_limit",
    ),
    ranks_alike=True,  # which states are free, and with it what is evicted and what runs
    hits=Is("copied recurrent states", ON),
    cost="A look at an attribute for each prompt that is tried. One that does not fit frees and copies a state each time.",
    avoid="Set --disable-radix-cache.",
    expect=(
        "On one replica with a small `--max-total-tokens`, send more prompts with a common prefix than fit, and abort some: "
        "stock, the idle server ends up to 0.5.4.post3. Corrections are counted for prompts that had to wait."
    ),
)
