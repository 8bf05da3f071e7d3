"""sglang.hicache-eagle-hash, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="sglang.hicache-eagle-hash",
    title="EAGLE and MTP end the server at their first cached prompt where HiCache has a storage",
    symptom="The scheduler ends in an AttributeError: 'tuple' object has no attribute 'to_bytes'.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.3,<0.5.4.post1",),
    code=("sglang.srt.mem_cache.hicache_storage:get_hash_str",),
    upstream=Upstream("sgl-project/sglang", pull=12025, issue=11919),
    harm=CRASH,
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Given("--hicache-storage-backend"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("recurrent layers", "off"),
    ),
    avoid="Leave --hicache-storage-backend out.",
)
