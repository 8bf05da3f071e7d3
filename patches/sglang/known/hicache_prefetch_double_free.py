"""sglang.hicache-prefetch-double-free, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

_CONTROLLER = "sglang.srt.managers.cache_controller:HiCacheController"

BUG = KnownBug(
    id="sglang.hicache-prefetch-double-free",
    title="Wrong answers behind cached prefixes with a HiCache storage: two prefixes get the same host memory",
    symptom="After a prefetch that ends early, its unread pages are freed twice, and two prompts overwrite each other's KV.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.1.post3,<0.5.6",),
    code=(f"{_CONTROLLER}._page_transfer", f"{_CONTROLLER}.prefetch_io_aux_func"),
    upstream=Upstream("sgl-project/sglang", pull=13501, issue=13483),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Unseen("whether a request starts, or a read fails, before its prefetch from storage is complete"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
