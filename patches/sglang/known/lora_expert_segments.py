"""sglang.lora-expert-segments, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="sglang.lora-expert-segments",
    title="Experts apply another request's LoRA adapter: tokens sorted by adapter are taken for requests",
    symptom="Beside others, a request is answered with their adapter of the experts, or a device-side assert ends the server.",
    symptoms=(SHARED_BATCH, DIES),
    releases=(">=0.5.10,<0.5.12",),
    code=("sglang.srt.lora.layers:FusedMoEWithLoRA._get_lora_info",),
    upstream=Upstream("sgl-project/sglang", pull=24007),
    hits=AllOf(
        Is("LoRA adapters", ON),
        Is("LoRA backend", "csgmv"),
        Unseen("adapters of experts, and requests of two of them, or of one and the base model, in a step"),
    ),
    avoid="Set `--lora-backend triton`.",
)
