"""vllm.image-block-deadlock, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, IMAGES

BUG = KnownBug(
    id="vllm.image-block-deadlock",
    title="A request with several large images hangs forever, and the queue behind it (hybrid models)",
    symptom="The GPU is idle: the encoder cache ends a chunk at the second image, and alignment rounds it to nothing.",
    symptoms=(DIES, CACHED_PREFIX, IMAGES),
    releases=(">=0.15.0,<0.28.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", issue=40707, pull=51603),
    ran=("0.15.0", "0.27.1"),
    harm=CRASH,
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        AnyOf(Is("Mamba2 layers", OFF), Is("--mamba-cache-mode", "align")),
        Unseen("prompts whose images do not fit the encoder's cache together, as two of 3024×4032 pixels"),
    ),
    avoid="Start with a higher `--max-num-batched-tokens`: it sizes the encoder's cache; or with `--no-enable-prefix-caching`.",
)
