"""sglang.hicache-hash-list, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.hicache-hash-list",
    title="A HiCache storage backend of one's own is told a wrong prefix of its pages",
    symptom="A dynamic storage backend that reads prefix keys gets pages of a node twice in them: hits are missed.",
    symptoms=(SLOW,),
    releases=(">=0.5.3.post2,<0.5.13",),
    code=("sglang.srt.mem_cache.radix_cache:TreeNode.get_prefix_hash_values",),
    upstream=Upstream("sgl-project/sglang", pull=26939, issue=26177),
    hits=AllOf(
        Is("--hicache-storage-backend", "dynamic"),
        Given("--hicache-storage-backend-extra-config"),
        Unseen("whether that storage backend reads prefix keys"),
    ),
    avoid="Leave hicache_storage_pass_prefix_keys out of `--hicache-storage-backend-extra-config`.",
    harm=SLOWER,
)
