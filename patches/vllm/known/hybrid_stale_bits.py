"""vllm.hybrid-stale-bits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.hybrid-stale-bits",
    title="NaN that grows with uptime: hybrid models read states as KV",
    symptom="Answers are right at first. With uptime they turn into one repeated token, as blocks of states become KV.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.2,<0.17.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=35219, issue=27264),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("states in another format than KV", ON),
        Not(Is("--attention-backend", "TRITON_ATTN")),
        AnyOf(Is("compute capability", 90, 100, 103), Unseen("a kernel of attention that multiplies masked values by zero")),
    ),
    avoid="Leave `--kv-cache-dtype` and `--mamba-ssm-cache-dtype` at `auto`; where states are float32, restart at times.",
)
