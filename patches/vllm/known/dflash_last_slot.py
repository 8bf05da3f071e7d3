"""vllm.dflash-last-slot, as data. A prompt's first step: vllm.draft-first-step-slots."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.dflash-last-slot",
    title="DFlash writes its last draft into a block of another request, where all drafts end a block",
    symptom="Some answers accept fewer drafts of DFlash, and change with their neighbours where layers share memory.",
    symptoms=(GARBAGE, SHARED_BATCH, SPECULATION),
    releases=(">=0.20.0,<0.23.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=43733),
    hits=AllOf(
        AnyOf(
            Is("--speculative-config.method", "dflash"),
            AllOf(Is("--speculative-config.method", OFF), Given("--speculative-config.model"), Unseen("a DFlash drafter")),
        ),
        Unseen("a prompt's last chunk, or a step whose drafts are all accepted, of which the next drafts end a block"),
    ),
    avoid="Nothing within the release avoids it; take release 0.23.0.",
)
