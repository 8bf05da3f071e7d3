"""vllm.load-behind-head, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.load-behind-head",
    title="Nothing runs and all requests wait: a prompt too long for now before those that loaded theirs",
    symptom="The scheduler stops at a request without room and never comes to those behind it, which hold the blocks.",
    symptoms=(DIES,),
    releases=(">=0.10.0,<0.31.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=57841),
    hits=AllOf(
        Is("loads beside steps", ON),
        Is("engine core", "V1"),
        Unseen("loads beside the steps, as NIXL's and KV offloading's, that hold most of the KV cache"),
        Unseen("before them a request without blocks: of higher priority, of structured output, or one put off"),
    ),
    avoid="Let a router send no more requests at once than the KV cache has room for; `--max-num-seqs` does not count loads.",
    harm=CRASH,
)
