"""vllm.async-write-received, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.async-write-received",
    title="Received KV is overwritten by a step in flight of the request that had its blocks (KV connectors)",
    symptom="Under load an answer behind a remote prefill or an offloaded prefix now and then is garbage.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.10.0,<0.24.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._free_blocks",),
    upstream=Upstream("vllm-project/vllm", pull=45357),
    hits=AllOf(
        Is("KV connector", ON),
        Not(Is("--kv-transfer-config.kv_role", "kv_producer")),
        AnyOf(Is("async scheduling", ON), Above("pipeline parallel size", 1)),
        Unseen("a connector whose loads do not wait for the model's stream, as NIXL, Mooncake and SimpleCPUOffloadConnector"),
    ),
    avoid="Start with `--no-async-scheduling`, and without pipeline stages.",
)
