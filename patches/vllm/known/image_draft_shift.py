"""vllm.image-draft-shift, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.image-draft-shift",
    title="The server dies when a step ends just before an image (EAGLE or MTP, images not in chunks)",
    symptom='The engine ends with "Encoder cache miss": the drafter looks one token ahead, at an image that was put off.',
    symptoms=(DIES, SPECULATION),
    releases=(">=0.12.0,<0.17.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("drafts from hidden states", ON),
        Is("--disable-chunked-mm-input", ON),
        Unseen("images that do not fit into the rest of a step; in 0.16.0 also a drafter that takes images"),
    ),
    avoid="Start without `--disable-chunked-mm-input`.",
    harm=CRASH,
)
