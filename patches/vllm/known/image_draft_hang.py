"""vllm.image-draft-hang, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES, SPECULATION

BUG = KnownBug(
    id="vllm.image-draft-hang",
    title="With a drafter, a prompt of two adjacent images that the encoder cache cannot hold is never answered",
    symptom="A request never gets its first token, with no error; its first image stays in the encoder cache.",
    symptoms=(IMAGES, SPECULATION),
    releases=(">=0.12.0,<0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",),
    upstream=Upstream("vllm-project/vllm-ascend", issue=17195),
    hits=AllOf(
        Is("drafts from hidden states", ON),
        Unseen("two images side by side, from 0.24.0 also one token apart, that do not fit the encoder cache together"),
    ),
    harm=CRASH,
    avoid="Raise `--max-num-batched-tokens`, and with it the encoder cache, until both images fit.",
)
