"""sglang.nixl-file-ids, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SLOW

BUG = KnownBug(
    id="sglang.nixl-file-ids",
    title="Wrong cached prefixes from HiCache over NIXL files: files of transfers that overlap share device ids",
    symptom="A prefix comes back with the KV of another, or its read or write fails with EBADF, while transfers overlap.",
    symptoms=(CACHED_PREFIX, GARBAGE, SLOW),
    releases=(">=0.5.15,<0.5.20",),
    code=("sglang.srt.mem_cache.storage.nixl.nixl_registry:NixlRegistry.storage",),
    upstream=Upstream("sgl-project/sglang", pull=34362),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Is("--hicache-storage-backend", "nixl"),
        Unseen("whether NIXL is 1.3.0 or newer, which opens the files itself"),
        Unseen("whether its plugin stores files, as POSIX, GDS, GDS_MT and 3FS do"),
    ),
    avoid="Choose another --hicache-storage-backend, such as file.",
)
