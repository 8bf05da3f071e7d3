"""vllm.load-draft-stall, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.load-draft-stall",
    title="Nothing runs and all requests wait: drafts beside loads that fill the KV cache (KV connectors)",
    symptom="Loads are let in without room for their drafts, so none can start once they hold all blocks.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.10.1,<0.31.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=57104),
    hits=AllOf(
        Is("loads beside steps", ON),
        Is("engine core", "V1"),
        AnyOf(
            Is("drafts from hidden states", ON),
            AllOf(
                Is("--speculative-config.method", "draft_model"),
                Not(AllOf(Since("0.23.0"), Not(Since("0.25.0")))),  # room for these drafts is kept
            ),
        ),
        Unseen("a connector that loads beside the steps, as NIXL does, and a KV cache that is full"),
    ),
    avoid="Serve without drafts, or let a router send no more requests at once than the KV cache has room for.",
    harm=CRASH,
)
