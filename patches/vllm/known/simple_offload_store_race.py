"""vllm.simple-offload-store-race, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.simple-offload-store-race",
    title="KV is kept on the CPU before it is computed (SimpleCPUOffloadConnector)",
    symptom=(
        "A prefix that returns from the CPU was copied while it was being computed: later requests with that prefix get "
        "garbage."
    ),
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.19.0,<0.24.0",),
    code=("vllm.v1.simple_kv_offload.worker:SimpleCPUOffloadWorker.get_finished",),
    upstream=Upstream("vllm-project/vllm", issue=45704, pull=46278),
    hits=AllOf(
        Is("name of the KV connector", "SimpleCPUOffloadConnector"),
        AnyOf(Is("async scheduling", ON), Above("pipeline parallel size", 1)),
    ),
    avoid="Take OffloadingConnector, the default of `--kv-offloading-size`: leave `VLLM_USE_SIMPLE_KV_OFFLOAD` out.",
    ran=("0.19.0", "0.23.0"),
)
