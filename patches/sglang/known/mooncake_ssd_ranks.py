"""sglang.mooncake-ssd-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.mooncake-ssd-ranks",
    title="Wrong cached prefixes with Mooncake's SSD offload: ranks overwrite each other's files",
    symptom="A prefix that comes back from the SSDs is wrong or missing, with several GPUs, often after a restart.",
    symptoms=(CACHED_PREFIX, GARBAGE, PARALLEL),
    releases=(">=0.5.12,<0.5.21",),
    code=("sglang.srt.mem_cache.storage.mooncake_store.mooncake_store:MooncakeStore.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("--hicache-storage-backend", "mooncake"),
        Not(AllOf(*(Is(size, "off", "1") for size in ("--tp-size", "--pp-size", "--dp-size")))),
        Unseen("whether MOONCAKE_ENABLE_SSD_OFFLOAD or the store's own configuration switches the offload on"),
    ),
    avoid="Leave MOONCAKE_ENABLE_SSD_OFFLOAD and `enable_ssd_offload` out.",
)
