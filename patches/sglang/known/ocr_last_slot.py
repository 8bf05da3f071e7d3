"""sglang.ocr-last-slot, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES

BUG = KnownBug(
    id="sglang.ocr-last-slot",
    title="UnlimitedOCR crashes once as many requests run as may: a table of lengths is one row short",
    symptom="The server ends with an index out of bounds when --max-running-requests requests run.",
    symptoms=(DIES, IMAGES),
    releases=(">=0.5.15,<0.5.18",),
    code=("sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "UnlimitedOCRForCausalLM"),
        Is("prefill backend", "fa3", "fa4"),
        Unseen("whether as many requests run as the server may run"),
    ),
    avoid="Have the clients send fewer requests at once than --max-running-requests.",
)
