"""sglang.hicache-mooncake-holes, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

_CONTROLLER = "sglang.srt.managers.cache_controller:HiCacheController"

BUG = KnownBug(
    id="sglang.hicache-mooncake-holes",
    title="Wrong answers behind prefixes that HiCache reads from Mooncake: missing pages count as read",
    symptom="A prefix is served with pages that nobody wrote, once Mooncake has dropped a page or a read fails.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.1,<0.5.1.post3",),
    code=(f"{_CONTROLLER}.prefetch_thread_func", f"{_CONTROLLER}.mooncake_page_transfer"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("--hicache-storage-backend", "mooncake"),
        Unseen("whether the store dropped one page of a stored prefix, or fails to read one"),
    ),
    avoid="Leave --hicache-storage-backend out, or set another one.",
)
