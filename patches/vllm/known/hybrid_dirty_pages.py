"""vllm.hybrid-dirty-pages, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.hybrid-dirty-pages",
    title="Accuracy decays under load until answers are NaN (hybrid models)",
    symptom="A hybrid model answers rightly at first, and worse the longer it serves: attention reads NaN of old states.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.11.0,<0.17.1",),
    code=(
        "vllm.v1.core.sched.scheduler:Scheduler.schedule",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._update_states",
    ),
    upstream=Upstream("vllm-project/vllm", pull=35219, issue=35138),
    hits=AllOf(
        Is("recurrent layers", ON),
        Unseen("KV pages that held recurrent states, and a kernel that multiplies masked values by zero"),
    ),
    avoid="Nothing within the release avoids it; take release 0.17.1.",
)
