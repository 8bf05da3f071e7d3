"""vllm.swa-admission-crash, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SHARED_BATCH

from . import wrap

_CORE = "vllm.v1.core"
_MANAGERS = f"{_CORE}.single_type_kv_cache_manager"

FIX = Fix(
    id="vllm.swa-admission-crash",
    title="Crash under load: no free block for a sliding window once the KV cache is full",
    symptom="Under load, the engine ends with `Cannot get 1 free blocks from the pool` (models with a sliding window).",
    symptoms=(DIES, SHARED_BATCH),
    cause=(
        "A bound for admission, of blocks that a window holds at a time, also limits the count of a step's blocks. A request "
        "beyond it seems to need none, and takes one that is not there."
    ),
    correction=(
        "A step counts the blocks that it takes, and a request without a free one waits or gives way to others. Admission "
        "keeps its bound. Layers without a window, and requests within the bound, stay as they are."
    ),
    upstream=Upstream("vllm-project/vllm", pull=41282, issue=45856),
    hardware="any GPU (models with sliding windows or chunks of local attention)",
    harm=CRASH,
    default=True,
    default_reason="the engine dies; upstream corrected it in 0.20.2 in the same way",
    targets=(
        Target(wrap.allocate_slots, needed=wrap.miscounted, paths=(f"{_CORE}.kv_cache_manager:KVCacheManager.allocate_slots",)),
    ),
    # The count of a step's blocks, and their owners
    witnesses=(
        f"{_CORE}.kv_cache_manager:KVCacheManager.can_fit_full_sequence",
        f"{_CORE}.kv_cache_coordinator:KVCacheCoordinator.get_num_blocks_to_allocate",
        f"{_MANAGERS}:SingleTypeKVCacheManager.__init__",
        f"{_MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        f"{_MANAGERS}:SingleTypeKVCacheManager.allocate_new_blocks",
        f"{_MANAGERS}:get_manager_for_kv_cache_spec",
        "vllm.v1.kv_cache_interface:SlidingWindowSpec",
        "vllm.v1.kv_cache_interface:ChunkedLocalAttentionSpec",
    ),
    remove_when="no vLLM below 0.20.2 serves a model with windows",
    cost="About a microsecond of host time for each request of a step; some 5 where a request beyond the bound takes a block.",
    avoid=(
        "Start with `--disable-hybrid-kv-cache-manager` if some layers of the model see all tokens. Otherwise, take release "
        "0.20.2."
    ),
    expect=(
        "On one replica with a small KV cache, send many long requests at a time: stock the engine dies, fixed all answers "
        "come."
    ),
    hits=Is("blocks that windows free", ON),
)
