"""vllm.mamba-draft-count-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

from . import wrap

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"

FIX = Fix(
    id="vllm.mamba-draft-count-assert",
    title="The engine dies as a request drafts fewer tokens than before (hybrid models, cached prefixes)",
    symptom="AssertionError `num_required_blocks … < len(req_blocks) …` in the scheduler.",
    symptoms=(CACHED_PREFIX, DIES, SPECULATION),
    cause=(
        "A request gets blocks for its state by the tokens of a step, drafts included. Refused drafts that reached beyond a "
        "block leave it a block that a next step with fewer drafts does not need. The cache manager asserts that no request "
        "has one."
    ),
    correction=(
        "In such a step, the request gets no block, and keeps those that it has, as in 0.23.0. Drafts longer than a block may "
        "have emptied the step's column: the engine ends there as ever, where 0.23.0 goes on with a wrong state."
    ),
    upstream=Upstream("vllm-project/vllm", pull=39562, issue=39271),
    hardware="any GPU (hybrid models with drafts and cached prefixes)",
    default=True,
    default_reason="the engine dies; 0.23.0 gives the request the same blocks, and no kernel changes",
    targets=(
        Target(
            wrap.allocate_new_blocks,
            needed=wrap.holds_more,
            paths=(f"{_MANAGERS}:MambaManager.allocate_new_blocks",),
        ),
    ),
    # How many blocks a step asks for, and who refuses to start with drafts
    witnesses=(
        f"{_MANAGERS}:SingleTypeKVCacheManager.allocate_new_blocks",
        f"{_MANAGERS}:MambaManager.get_num_blocks_to_allocate",
        f"{_MANAGERS}:MambaManager.remove_skipped_blocks",
        "vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",
        "vllm.v1.core.block_pool:BlockPool.get_new_blocks",
        "vllm.utils.math_utils:cdiv",
        "vllm.model_executor.models.config:MambaModelConfig.verify_and_update_config",
    ),
    cost="Less than a microsecond for each request of a step and each group of layers with a state.",
    avoid="Start with `--no-enable-prefix-caching`.",
    expect="On one replica, a hybrid model with drafts and cached prefixes goes on where it ended with this AssertionError.",
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cache mode of states", "align"),
        Is("speculative decoding", ON),
    ),
    harm=CRASH,
)
