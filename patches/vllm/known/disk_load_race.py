"""vllm.disk-load-race, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.disk-load-race",
    title="A prefix that returns from disk holds blocks of another prefix (SimpleCPUOffloadConnector)",
    symptom="Loads in a row share staging buffers, and the second one overwrites what the first still copies: garbage.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.28.0,<0.30.0",),
    code=("vllm.v1.simple_kv_offload.disk_backend:DiskBackend._do_load",),
    upstream=Upstream("vllm-project/vllm", pull=51667),
    hits=AllOf(
        Is("name of the KV connector", "SimpleCPUOffloadConnector"),
        AnyOf(
            Is("--kv-transfer-config.kv_connector_extra_config.kv_offload_backend", "disk"),
            AllOf(Is("--kv-transfer-config.kv_connector", "MultiConnector"), Unseen("a kv_offload_backend in it, disk")),
        ),
        Unseen("loads that follow each other at once"),
    ),
    avoid="Offload to the CPU: leave `kv_offload_backend` out of kv_connector_extra_config.",
)
