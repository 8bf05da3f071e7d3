"""vllm.zeroed-received, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.zeroed-received",
    title="KV from a prefill server or a CPU cache is overwritten with zeros (hybrid models, async scheduling)",
    symptom="The GPU zeroes a new block only after the connector has filled it, and attention layers lose what was loaded.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.18.0,<0.26.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=48481),
    hits=AllOf(
        Is("KV connector", ON),
        Not(Is("--kv-transfer-config.kv_role", "kv_producer")),
        Is("recurrent layers", ON),
        Is("hybrid KV cache manager", ON),
        Is("async scheduling", ON),
        Unseen("a connector that loads beside the steps, as NIXL, Mooncake and OffloadingConnector do"),
    ),
    avoid="Start the servers that load with `--no-async-scheduling`.",
)
