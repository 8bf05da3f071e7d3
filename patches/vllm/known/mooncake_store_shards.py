"""vllm.mooncake-store-shards, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.mooncake-store-shards",
    title="Ranks load the recurrent state of another rank behind a stored prefix (MooncakeStoreConnector)",
    symptom="Warm answers of a hybrid model are worse than cold ones: ranks that share KV heads share one stored state, too.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.22.0,<0.27.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker:MooncakeStoreWorker.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=49499),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeStoreConnector", "MultiConnector"),
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        Above("--tensor-parallel-size", 1),
        Unseen("more ranks than KV heads (MLA has one), and prefixes that return from the store"),
    ),
    avoid="Start with at most as many ranks as the model has KV heads.",
)
