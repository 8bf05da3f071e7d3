"""vllm.session-stall, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.session-stall",
    title="Nothing runs and all requests wait once sessions of streamed input fill the KV cache",
    symptom="Sessions that wait keep their blocks, and with none running there is nobody to take blocks from.",
    symptoms=(DIES,),
    releases=(">=0.15.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=49439),
    hits=AllOf(
        Is("architecture", "VoxtralRealtimeGeneration", "VoxtralStreamingGeneration", "Qwen3ASRRealtimeGeneration"),
        Unseen("sessions of streamed input, as by `/v1/realtime`, that together exceed the KV cache"),
    ),
    avoid="Lower `--max-num-seqs` and `--max-model-len` until all open sessions fit in the KV cache.",
    harm=CRASH,
)
