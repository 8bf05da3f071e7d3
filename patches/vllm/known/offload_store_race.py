"""vllm.offload-store-race, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.offload-store-race",
    title="KV is kept on the CPU before it is computed (OffloadingConnector)",
    symptom=(
        "A prefix that returns from the CPU was copied while it was being computed: later requests with that prefix get "
        "garbage."
    ),
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.11.0,<0.14.0",),
    code=(
        "vllm.v1.kv_offload.worker.cpu_gpu:CpuGpuOffloadingHandler.transfer_async",
        "vllm.v1.kv_offload.worker.cpu_gpu:SingleDirectionOffloadingHandler.transfer_async",
    ),
    upstream=Upstream("vllm-project/vllm", issue=31210, pull=31341),
    hits=Is("name of the KV connector", "OffloadingConnector"),
    avoid="Serve without offloading to the CPU, or take release 0.14.0.",
    ran=("0.11.0", "0.13.0"),
)
