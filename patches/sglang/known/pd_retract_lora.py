"""sglang.pd-retract-lora, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.pd-retract-lora",
    title="Requests of a LoRA adapter go on from the base model's KV after a retraction (P/D)",
    symptom="The prefill server computes a retracted request without its adapter, and caches that under the adapter's key.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.16,<=0.5.23",),
    code=("sglang.srt.managers.schedule_batch:Req.build_rebootstrap_payload",),
    upstream=Upstream("sgl-project/sglang", pull=25372),
    hits=AllOf(
        Is("--disaggregation-mode", "decode"),
        AnyOf(Given("--enable-lora"), Given("--lora-paths")),
        Unseen("calls of /pause_generation with mode retract while requests of an adapter run"),
    ),
    avoid="Pause with mode abort, and send the requests again.",
)
