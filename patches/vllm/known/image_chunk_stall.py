"""vllm.image-chunk-stall, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.image-chunk-stall",
    title="A request with an image waits as long as others are there (--long-prefill-token-threshold)",
    symptom="An image of more tokens than the threshold is never begun: no chunk may hold a part of it.",
    symptoms=(DIES, SHARED_BATCH, IMAGES),
    releases=(">=0.33.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",),
    upstream=Upstream("vllm-project/vllm", issue=52306),
    harm=CRASH,
    hits=AllOf(
        AnyOf(Given("--disable-chunked-mm-input"), Is("images attended both ways", ON)),
        Above("--long-prefill-token-threshold", 0),
        Unseen("images of more tokens than the threshold"),
    ),
    avoid="Leave `--long-prefill-token-threshold` out, or set it above the tokens of the largest image.",
    ran=("0.33.0",),
)
