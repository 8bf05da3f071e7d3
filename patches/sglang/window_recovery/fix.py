"""sglang.window-recovery, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

from . import wrap

_CACHE = "sglang.srt.mem_cache"
_TREE = f"{_CACHE}.swa_radix_cache:SWARadixCache"

FIX = Fix(
    id="sglang.window-recovery",
    title="A running request loses KV when another one caches the same long prefix (sliding-window models)",
    symptom="Answers of window models turn into garbage while another request with the same long prefix is computed or ends.",
    symptoms=(SHARED_BATCH, GARBAGE),
    cause=(
        "Behind its window, a cached prefix may keep the KV of full layers alone. A request that computes the prefix again "
        "puts its own slots there, and the old ones are freed. Requests that run behind the prefix still read them."
    ),
    correction=(
        "A prefix that a request has locked keeps its slots, and takes over the new KV of window layers alone. The other new "
        "slots are free, but not before a chunk in flight has written its KV."
    ),
    upstream=Upstream("sgl-project/sglang", pull=29352),
    hardware="any GPU (models with a pool of window layers)",
    targets=(
        Target(wrap.insert_helper, needed=wrap.takes_locked, paths=(f"{_TREE}._insert_helper",)),
        Target(wrap.cache_unfinished_req, needed=wrap.holds_back, paths=(f"{_TREE}.cache_unfinished_req",)),
        Target(wrap.cache_finished_req, needed=wrap.holds, paths=(f"{_TREE}.cache_finished_req",)),
    ),
    # The tree, what keeps its order, and the map from slots to those of window layers
    witnesses=(
        f"{_TREE}",
        f"{_CACHE}.swa_radix_cache:LRUList",
        f"{_CACHE}.swa_radix_cache:TreeNode",
        f"{_CACHE}.allocator.swa:SWATokenToKVPoolAllocator",
        f"{_CACHE}.swa_memory_pool:SWATokenToKVPoolAllocator",
        f"{_CACHE}.allocator:SWATokenToKVPoolAllocator",
    ),
    # Another tree has the same fault: sglang.unified-window-recovery
    hits=AllOf(Is("sliding-window KV pool", ON), Is("radix cache for window layers alone", ON)),
    default=True,
    default_reason="upstream has corrected the same; 10,000 requests leave no slot and no lock behind",
    ranks_alike=True,  # how many slots are free follows from it
    look_does="its look reads what a correction stored",
    cost=(
        "Sizes are compared when a request is cached. While a locked prefix lacks window KV, the nodes of the prefix are "
        "looked up. A correction takes four small kernels for each node."
    ),
    avoid="Set `--disable-hybrid-swa-memory`, which takes more memory, or `--disable-radix-cache`.",
    expect=(
        "On one replica whose window pool is full, start a long answer behind a long prompt, then prompts that share a part of "
        "it: stock, the answer turns into garbage at some time."
    ),
)
