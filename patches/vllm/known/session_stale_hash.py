"""vllm.session-stale-hash, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="vllm.session-stale-hash",
    title="A request is given another prompt's KV after a session of streamed input (prefix cache)",
    symptom="A streamed session drops its last token, and the block's hash still names that token and not the next one.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.15.0,<0.32.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._update_request_as_session",),
    upstream=Upstream("vllm-project/vllm", issue=49377),
    hits=AllOf(Is("prefix caching", ON), Unseen("sessions of streamed input, as by AsyncLLM or `/v1/realtime`")),
    avoid="Start with `--no-enable-prefix-caching` where sessions stream their input.",
)
