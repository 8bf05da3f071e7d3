"""sglang.retraction-leak, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_RESULTS = "sglang.srt.managers.scheduler_output_processor_mixin:SchedulerOutputProcessorMixin"
_REQUESTS, _CACHE = "sglang.srt.managers.schedule_batch", "sglang.srt.mem_cache"
_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"

FIX = Fix(
    id="sglang.retraction-leak",
    title="A server ends, once idle, after it took a running request back for want of KV memory (overlap)",
    symptom="The KV slot of the token that was in flight is never freed, and the memory check ends the idle server.",
    symptoms=(DIES,),
    cause=(
        "A request that is taken back frees the KV of the tokens whose results are known. One more is in flight, and its "
        "result is passed over."
    ),
    correction="The slot of the token in flight becomes free with the others, as up to 0.5.3.post1. Nothing else changes.",
    upstream=Upstream("sgl-project/sglang", pull=11981, issue=11970),
    hardware="any GPU (overlap scheduling, the default, and a full KV pool or preemption)",
    targets=(Target(wrap.release_req, needed=wrap.left_over, paths=(f"{_REQUESTS}:ScheduleBatch.release_req",)),),
    # What is freed as a request is taken back, and what a batch says of its tokens
    witnesses=(
        f"{_REQUESTS}:ScheduleBatch.retract_decode",
        f"{_REQUESTS}:ScheduleBatch.prepare_for_extend",
        f"{_REQUESTS}:ScheduleBatch.prepare_for_decode",
        f"{_RESULTS}.process_batch_result_decode",
        f"{_RESULTS}.process_batch_result_prefill",
        f"{_REQUESTS}:ScheduleBatch.mix_with_running",
        f"{_REQUESTS}:ScheduleBatch.copy",
        f"{_REQUESTS}:Req.reset_for_retract",
        f"{_REQUESTS}:Req.finished",
        f"{_SCHEDULER}.event_loop_overlap",
        f"{_CACHE}.radix_cache:RadixCache.cache_finished_req",
        f"{_CACHE}.chunk_cache:ChunkCache.cache_finished_req",
    ),
    default=True,
    default_reason="a crash; upstream has corrected the same, and only requests that were taken back are touched",
    ranks_alike=True,  # which requests run follows from it
    harm=CRASH,
    hits=AllOf(Is("steps overlap", ON), Is("answers that may be taken back", ON), Is("speculative decoding", OFF)),
    cost="A look at lengths as a request is taken back. Nothing in a step.",
    avoid="Set --disable-overlap-schedule.",
    expect=(
        "On one replica with a small `--max-total-tokens`, send requests until the log says that some were retracted, and "
        "stop: stock ends once idle, fixed goes on."
    ),
)
