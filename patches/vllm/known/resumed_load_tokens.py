"""vllm.resumed-load-tokens, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.resumed-load-tokens",
    title="A preempted request goes on with tokens that it never had (OffloadingConnector)",
    symptom="Answers derail after a preemption: the loaded request is taken for a new one and loses its output.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.11.0,<0.14.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("requests that are preempted behind their first token and whose KV was offloaded"),
    ),
    avoid="Lower `--max-num-seqs` until no request is preempted.",
)
