"""vllm.lmcache-mp-blocks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.lmcache-mp-blocks",
    title="LMCache keeps KV of wrong tokens once a request was loaded from it (LMCacheMPConnector)",
    symptom=(
        "Follow-up turns are wrong. Blocks of a loaded request are listed twice, and KV of its beginning is stored for later "
        "tokens."
    ),
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.14.0,<0.18.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector:LMCacheMPConnector.update_state_after_alloc",),
    upstream=Upstream("vllm-project/vllm", pull=35831),
    hits=AllOf(
        Is("name of the KV connector", "LMCacheMPConnector"),
        Unseen("requests that load a part of their prompt from LMCache and go on for one chunk of it or more"),
    ),
    avoid="Take LMCacheConnectorV1 in its place.",
)
