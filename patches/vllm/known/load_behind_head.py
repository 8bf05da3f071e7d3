"""vllm.load-behind-head, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.load-behind-head",
    title="Nothing runs and all requests wait: a prompt too long for now before those that loaded theirs",
    symptom="The scheduler stops at a request without room and never comes to those behind it, which hold the blocks.",
    symptoms=(DIES,),
    releases=(">=0.23.0,<0.31.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=57841),
    hits=AllOf(
        Is("KV connector", ON),
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "OffloadingConnector", "MultiConnector"),
            Is("--scheduling-policy", "priority"),
        ),
        Unseen("loads beside the steps that hold most of the KV cache"),
    ),
    avoid="Lower `--max-num-seqs` until that many longest prompts fit in the KV cache.",
    harm=CRASH,
)
