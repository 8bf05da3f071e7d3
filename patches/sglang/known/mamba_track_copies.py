"""sglang.mamba-track-copies, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.mamba-track-copies",
    title="Each decode step waits for a copy per request from the GPU (hybrid models, extra_buffer)",
    symptom="Decode of large batches is slower than without the buffer, since a list of GPU numbers is read one by one.",
    symptoms=(SLOW,),
    releases=(">=0.5.7,<0.5.10",),
    code=("sglang.srt.managers.schedule_batch:ScheduleBatch.prepare_for_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Is("speculative decoding", OFF),
        Not(Is("--disaggregation-mode", "prefill")),
    ),
    avoid="Start with `--mamba-scheduler-strategy no_buffer`, which switches the overlap schedule off.",
    harm=SLOWER,
)
