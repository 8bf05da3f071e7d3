"""sglang.ocr-last-slot, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES

BUG = KnownBug(
    id="sglang.ocr-last-slot",
    title="UnlimitedOCR crashes on its last request slot: a table of prompt lengths is one row short",
    symptom="The server ends with an index out of bounds after as many requests as --max-running-requests, at once or not.",
    symptoms=(DIES, IMAGES),
    releases=(">=0.5.15,<0.5.18",),
    code=("sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "UnlimitedOCRForCausalLM"),
        Is("prefill backend", "fa3", "fa4"),
        Unseen("whether the server takes as many requests until its restart as may run at once"),
    ),
    avoid="Nothing within the release avoids it; a larger --max-running-requests puts it off.",
)
