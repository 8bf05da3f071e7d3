"""vllm.offload-abort, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.offload-abort",
    title="The engine dies when a client cancels a request that waits or was preempted (OffloadingConnector)",
    symptom="`assert len(offload_keys) == len(offload_block_ids)`: all tokens of a cancelled request count as computed.",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.26.0,<0.27.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler:OffloadingConnectorScheduler._build_store_jobs",),
    upstream=Upstream("vllm-project/vllm", pull=49285, issue=49118),
    harm=CRASH,
    hits=Is("name of the KV connector", "OffloadingConnector"),
    avoid="Start without the connector, or with SimpleCPUOffloadConnector.",
)
