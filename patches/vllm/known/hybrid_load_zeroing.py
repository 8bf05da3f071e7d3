"""vllm.hybrid-load-zeroing, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.hybrid-load-zeroing",
    title="Received or reloaded KV is zeroed on its arrival (hybrid models, KV connector, async scheduling)",
    symptom="Under load, answers behind a remote prefill or an offloaded prefix ignore parts of their prompt.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.18.0,<0.26.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=48481),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("KV connector", ON),
        Not(Is("--kv-transfer-config.kv_role", "kv_producer")),
        Is("async scheduling", ON),
        Unseen("an asynchronous load that writes before the GPU is through with the step before"),
    ),
    avoid="Start with `--no-async-scheduling`.",
)
