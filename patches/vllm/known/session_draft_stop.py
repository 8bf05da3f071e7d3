"""vllm.session-draft-stop, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.session-draft-stop",
    title="Sessions of streamed input go on with KV of drafts behind their stop (speculative decoding)",
    symptom="A session answers as if a token of its update were another one, and so do prompts that begin like it.",
    symptoms=(GARBAGE, CACHED_PREFIX, SPECULATION),
    releases=(">=0.15.0,<0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._update_request_with_output",),
    upstream=Upstream("vllm-project/vllm", pull=44526),
    hits=AllOf(
        Is("speculative decoding", ON),
        Unseen("sessions of streamed input, as by AsyncLLM, with a turn that stops before the last draft of a step"),
    ),
    avoid="Serve sessions without `--speculative-config`, or take release 0.33.0.",
)
