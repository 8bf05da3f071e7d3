"""sglang.future-slots, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import SHARED_BATCH

from . import wrap

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_RING = "sglang.srt.managers.overlap_utils"
_CLIENT = "sglang.srt.managers.tp_worker_overlap_thread"

FIX = Fix(
    id="sglang.future-slots",
    title="Answers get a token of another request while a prompt of many chunks is read (overlap schedule)",
    symptom=(
        "Few requests may run at once, and long prompts are read in chunks: requests that decode meanwhile continue behind "
        "another request's token. No error."
    ),
    symptoms=(SHARED_BATCH,),
    cause=(
        "Newest tokens wait in a ring of three slots per request. Decoding waits until all prompts are read, and each chunk "
        "takes a slot: many chunks write over what still waits."
    ),
    correction=(
        "The ring gets a slot for each chunk that the KV cache has room for. Prompts of one new token each, which end at once, "
        "may still come around."
    ),
    upstream=Upstream("sgl-project/sglang", pull=13916),
    hardware="any GPU (overlap scheduling, the default, with few running requests)",
    default=True,
    default_reason="upstream has corrected the same with a longer ring; the server alone reads it",
    targets=(
        Target(
            wrap.make_ring,
            needed=wrap.in_chunks,
            paths=(f"{_SCHEDULER}.init_overlap", f"{_CLIENT}:TpModelWorkerClient.__init__"),
        ),
    ),
    # The ring, who takes slots of it, and in which order batches run
    witnesses=(
        f"{_RING}:FutureMap",
        f"{_RING}:_resolve_future_token_ids",
        f"{_CLIENT}:resolve_future_token_ids",
        f"{_CLIENT}:TpModelWorkerClient.forward_batch_generation",
        f"{_CLIENT}:TpModelWorkerClient.forward_thread_func_",
        f"{_SCHEDULER}.run_batch",
        f"{_SCHEDULER}.get_next_batch_to_run",
    ),
    cost="Eight bytes of GPU memory for each slot more; with EAGLE, the hidden state of a token.",
    avoid="Set --disable-overlap-schedule, a larger --chunked-prefill-size or more --max-running-requests.",
    expect="On one replica, requests that decode beside a prompt of many chunks answer as they do alone.",
    hits=AllOf(
        Is("overlap schedule", ON),
        AnyOf(Is("speculative decoding", OFF), Is("spec v2", ON)),
        Is("more chunks than running requests", ON),
    ),
)
