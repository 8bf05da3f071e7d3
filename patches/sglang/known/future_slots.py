"""sglang.future-slots, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH

BUG = KnownBug(
    id="sglang.future-slots",
    title="Answers get a token of another request while a prompt of many chunks is read (overlap schedule)",
    symptom="Newest tokens wait in a ring of three slots per request, and the chunks of a long prompt overwrite them.",
    symptoms=(SHARED_BATCH,),
    releases=(">=0.5.1,<0.5.6",),
    code=(
        "sglang.srt.managers.overlap_utils:FutureMap.__init__",
        "sglang.srt.managers.tp_worker_overlap_thread:TpModelWorkerClient.__init__",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Given("--max-running-requests"), Is("speculative decoding", "on")),
        AnyOf(Is("speculative decoding", "off"), Is("spec v2", "on")),
        Not(Given("--disable-overlap-schedule")),
        Not(Given("--enable-mixed-chunk")),
        Is("--pp-size", "off", "1"),
        Not(Is("--chunked-prefill-size", "-1")),
        Unseen("whether a prompt has more chunks than twice --max-running-requests"),
    ),
    avoid="Set --disable-overlap-schedule, a larger --chunked-prefill-size or more --max-running-requests.",
)
