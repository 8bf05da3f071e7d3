"""sglang.mrope-retraction, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES

BUG = KnownBug(
    id="sglang.mrope-retraction",
    title="Qwen-VL and GLM-V models end when a request with an image is taken back for want of KV memory",
    symptom="The request starts again with its answer so far, which has no positions. The server ends in a wrong shape.",
    symptoms=(DIES, IMAGES),
    releases=(">=0.5.1,<0.5.6",),
    code=("sglang.srt.managers.schedule_batch:Req.init_next_round_input",),
    upstream=Upstream("sgl-project/sglang", pull=13700, issue=12722),
    harm=CRASH,
    hits=AllOf(
        Is("M-RoPE", "on"),
        Not(Is("--disaggregation-mode", "prefill", "decode")),
        Unseen("whether the KV pool runs full while requests with images run"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.6.",
)
