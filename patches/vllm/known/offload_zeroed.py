"""vllm.offload-zeroed, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.offload-zeroed",
    title="A prefix that returns from the CPU is overwritten with zeros (OffloadingConnector, hybrid models)",
    symptom="A load does not wait for the GPU, which zeroes the same blocks later, and attention layers lose the prefix.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.23.0,<0.28.0",),
    code=("vllm.v1.kv_offload.cpu.gpu_worker:SingleDirectionOffloadingHandler.transfer_async",),
    upstream=Upstream("vllm-project/vllm", pull=50696),
    hits=AllOf(
        AnyOf(Is("--kv-transfer-config.kv_connector", "OffloadingConnector", "MultiConnector"), Given("--kv-offloading-size")),
        Is("recurrent layers", ON),
        Is("async scheduling", ON),
        Unseen("loads that end before the steps that were given out"),
    ),
    avoid="Start with `--no-async-scheduling`, or serve without offloading to the CPU.",
)
