"""sglang.hicache-storage-namespace, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.hicache-storage-namespace",
    title="LoRA adapters, cache salts and tenants share the KV that HiCache keeps in a storage backend",
    symptom=(
        "A prompt that one adapter or tenant computed is answered from its stored KV for another one. Answers of an adapter "
        "are then silently those of another, or of the base model."
    ),
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.3,<0.5.20",),
    code=(
        "sglang.srt.managers.cache_controller:HiCacheController._storage_hit_query",
        "sglang.srt.mem_cache.radix_cache:compute_node_hash_values",
        "sglang.srt.mem_cache.utils:compute_node_hash_values",
    ),
    upstream=Upstream("sgl-project/sglang", issue=26747, pull=38577),
    hits=AllOf(
        Given("--hicache-storage-backend"),
        AnyOf(*map(Given, ("--enable-hierarchical-cache", "--disaggregation-decode-enable-offload-kvcache"))),
        Unseen("whether requests name adapters, cache salts or extra keys"),
    ),
    avoid="Leave out `--hicache-storage-backend` where adapters or tenants share a server or its storage.",
    ran=("0.5.6", "0.5.19"),
)
