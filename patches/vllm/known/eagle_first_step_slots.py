"""vllm.eagle-first-step-slots, as data. Later releases: vllm.draft-first-step-slots."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.eagle-first-step-slots",
    title="EAGLE and MTP write their KV into blocks of other requests behind a prompt's first step",
    symptom="Other requests lose accepted drafts where a prompt's first step ends a block; with Qwen3-Next, wrong text.",
    symptoms=(GARBAGE, SHARED_BATCH, SPECULATION),
    releases=(">=0.10.1,<0.11.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=43733),
    hits=AllOf(
        Is("drafts from hidden states", ON),
        Unseen("a prompt of one step that ends at, or just before, the end of a block, and two drafts or more"),
    ),
    avoid="Set `num_speculative_tokens` of `--speculative-config` to 1.",
)
