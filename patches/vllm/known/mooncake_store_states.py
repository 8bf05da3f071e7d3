"""vllm.mooncake-store-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.mooncake-store-states",
    title="A stored prefix returns with an empty or foreign recurrent state (MooncakeStoreConnector)",
    symptom="Answers behind a prefix from the store run away (hybrid models): its state was read from a block that was freed.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.22.0,<0.29.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker:KVCacheStoreSendingThread._handle_request",),
    upstream=Upstream("vllm-project/vllm", pull=51358, issue=53084),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeStoreConnector", "MultiConnector"),
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        Unseen("prefixes that return from the store"),
    ),
    avoid="Serve hybrid models without MooncakeStoreConnector.",
)
