"""vllm.tier-lookup-assert, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.tier-lookup-assert",
    title="The server dies when an aborted request is sent again (offloading with a second tier)",
    symptom="`cached key received a second lookup result` ends the server: a lookup in the second tier outlived its request.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.28.0,<0.30.0",),
    code=("vllm.v1.kv_offload.tiering.async_lookup:AsyncLookupManager.drain_results",),
    upstream=Upstream("vllm-project/vllm", pull=54872),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("a tier of type fs or obj in kv_connector_extra_config, and a request that ends during its lookup"),
    ),
    avoid="Leave tiers of type fs and obj out of kv_connector_extra_config.",
    harm=CRASH,
)
