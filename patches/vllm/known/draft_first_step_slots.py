"""vllm.draft-first-step-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.draft-first-step-slots",
    title="Drafters write their KV into blocks of other requests behind a prompt's first step",
    symptom="Other requests lose accepted drafts; where layers share memory, as in hybrid models, their text goes wrong.",
    symptoms=(GARBAGE, SHARED_BATCH, SPECULATION),
    releases=(">=0.10.1,<0.23.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=43733),
    hits=AllOf(
        AnyOf(Is("drafts from hidden states", ON), Is("--speculative-config.method", "draft_model")),
        Unseen("a prompt of one step that ends at, or just before, the end of a block, and two drafts (EAGLE, MTP) or more"),
    ),
    avoid="Set `num_speculative_tokens` of `--speculative-config` to 1 (DFlash, draft models: start without drafts).",
)
