"""vllm.pp-sync-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.pp-sync-drafts",
    title="Wrong text or a fault: drafts over pipeline stages without async scheduling (V2 runner)",
    symptom=(
        "With pipeline parallelism, drafts and `--no-async-scheduling`, a request is scheduled again before its drafts "
        "are verified."
    ),
    symptoms=(SPECULATION, PARALLEL),
    releases=(">=0.22.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", issue=52071),
    hits=AllOf(
        Is("model runner", "V2"),
        Above("pipeline parallel size", 1),
        Is("speculative decoding", ON),
        Is("async scheduling", OFF),
    ),
    avoid="Leave `--no-async-scheduling` out, or serve without drafts.",
)
