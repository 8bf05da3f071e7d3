"""vllm.simple-offload-lost-store, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.simple-offload-lost-store",
    title="A prefix that returns from the CPU was never copied there (SimpleCPUOffloadConnector, lazy)",
    symptom="Garbage on a CPU hit: copies of steps that compute nothing are dropped, and the next copy reports them as done.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.29.0,<0.30.0",),
    code=(
        "vllm.v1.simple_kv_offload.worker:SimpleCPUOffloadWorker.clear_connector_metadata",
        "vllm.v1.simple_kv_offload.worker:SimpleCPUOffloadWorker.wait_for_save",
    ),
    upstream=Upstream("vllm-project/vllm", pull=56621),
    hits=AllOf(
        Is("name of the KV connector", "SimpleCPUOffloadConnector"),
        Unseen("lazy_offload true in kv_connector_extra_config"),
    ),
    avoid="Leave `lazy_offload` out of kv_connector_extra_config.",
)
