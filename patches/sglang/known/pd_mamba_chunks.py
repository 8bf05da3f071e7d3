"""sglang.pd-mamba-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="sglang.pd-mamba-chunks",
    title="A prefill server of a hybrid model forgets all chunks of a prompt but the last",
    symptom="After each chunk the recurrent state is cleared and given to another request, which shares it from then on.",
    symptoms=(LONG_PROMPT, SHARED_BATCH),
    releases=(">=0.5.3.post3,<0.5.5.post2",),
    code=("sglang.srt.disaggregation.prefill:SchedulerDisaggregationPrefillMixin.process_prefill_chunk",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("recurrent layers", "on"),
        Is("--disaggregation-mode", "prefill"),
        Not(Is("--chunked-prefill-size", "-1")),
        Unseen("whether prompts are longer than a chunk"),
    ),
    avoid="Set --chunked-prefill-size -1 on the prefill server.",
)
