"""vllm.arc-offload, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.arc-offload",
    title="The server dies as it offloads its first block (OffloadingConnector, eviction policy arc)",
    symptom="The engine ends with a KeyError in ARCOffloadingManager.touch: a block is taken out of a list, then moved in it.",
    symptoms=(DIES,),
    releases=(">=0.11.1,<0.17.0",),
    code=("vllm.v1.kv_offload.arc_manager:ARCOffloadingManager.touch",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        AnyOf(
            Is("--kv-transfer-config.kv_connector_extra_config.eviction_policy", "arc"),
            AllOf(Is("--kv-transfer-config.kv_connector", "MultiConnector"), Unseen("an eviction_policy in it, arc")),
        ),
    ),
    avoid='Leave `eviction_policy` at "lru".',
    harm=CRASH,
)
