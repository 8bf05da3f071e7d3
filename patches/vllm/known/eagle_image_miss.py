"""vllm.eagle-image-miss, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES, SPECULATION

BUG = KnownBug(
    id="vllm.eagle-image-miss",
    title="The server dies when a chunk of a prompt ends right before an image (EAGLE or MTP)",
    symptom="`Encoder cache miss`, or an assertion without a message, ends the engine: the drafter asks one token too far.",
    symptoms=(
        DIES,
        IMAGES,
        SPECULATION,
    ),
    releases=(">=0.10.1,<0.12.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("drafts from hidden states", ON),
        Unseen("a prompt with images of which a chunk ends right before one"),
    ),
    avoid="Raise `--max-num-batched-tokens`: the higher it is, the rarer a chunk ends before an image.",
    harm=CRASH,
)
