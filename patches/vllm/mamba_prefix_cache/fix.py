"""vllm.mamba-prefix-cache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_CORE = "vllm.v1.core"
_COORDINATOR = f"{_CORE}.kv_cache_coordinator"
_MANAGER = f"{_CORE}.single_type_kv_cache_manager"

FIX = Fix(
    id="vllm.mamba-prefix-cache",
    title="Follow-up turns are garbage with prefix caching and MTP (hybrid models)",
    symptom=(
        "With --enable-prefix-caching and MTP, a hybrid model (Qwen3-Next, Qwen3.5, Qwen3.6) answers the first turn of a "
        "conversation well. Garbage follows in later turns, or text of other conversations. A prompt that was answered badly "
        "once stays so until the server is restarted. No error."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "Two faults. From 0.20.0 to 0.25.1 a prefix is looked up one block longer for recurrent states than attention holds of "
        "it: the keys of that block are those of whoever had its memory before. From 0.15.0 to 0.26.0 a chunk of a prompt may "
        "end within a block, and the next one run past its end: the state that is cached for the end of the block is that of "
        "an earlier token. (With drafts near the end of a prompt, where other requests leave it few tokens of a step. In "
        "0.15.0-0.16.0, which refuse drafts here, after a preemption.)"
    ),
    correction=(
        "Where attention holds less of a prefix than was found, states are looked up once more, up to what it holds. A chunk "
        "that begins within a block ends no later than the block."
    ),
    upstream=Upstream("vllm-project/vllm", pull=45614, issue=43559),
    hardware="any GPU (hybrid models with --enable-prefix-caching, and speculative decoding by MTP or EAGLE)",
    default=True,
    default_reason="silent wrong output; later releases look up and cut in the same way",
    targets=(
        Target(
            wrap.find_longest_cache_hit,
            needed=wrap.looks_for_states_past_attention,
            paths=(f"{_COORDINATOR}:HybridKVCacheCoordinator.find_longest_cache_hit",),
        ),
        Target(
            wrap.mamba_block_aligned_split,
            needed=wrap.starts_within_a_block,
            paths=(f"{_CORE}.sched.scheduler:Scheduler._mamba_block_aligned_split",),
        ),
    ),
    # What is looked up, by whom with a margin, and which block is taken for the state of which token
    witnesses=(
        f"{_COORDINATOR}:HybridKVCacheCoordinator.__init__",
        f"{_COORDINATOR}:HybridKVCacheCoordinator.verify_and_split_kv_cache_groups",
        f"{_COORDINATOR}:HybridKVCacheCoordinator._cache_hit_alignment_tokens",
        f"{_COORDINATOR}:KVCacheCoordinator.__init__",
        f"{_COORDINATOR}:SpecGroup",
        f"{_MANAGER}:FullAttentionManager.find_longest_cache_hit",
        f"{_MANAGER}:MambaManager.find_longest_cache_hit",
        f"{_MANAGER}:MambaManager.allocate_new_blocks",
        f"{_MANAGER}:MambaManager.cache_blocks",
        "vllm.v1.request:Request.num_tokens",
        "vllm.v1.request:Request.num_output_tokens",
        "vllm.utils.math_utils:cdiv",
    ),
    remove_when="no vLLM below 0.27.0 is served with prefix caching of hybrid models",
    cost=(
        "Some µs of host time per look into the cache, and per chunk of a prompt. Fewer tokens come from the cache than stock "
        "says, as those were not there: in the proof's conversations 67% of the prompts' tokens for stock's 75% (67% in 0.26.0 "
        "and 0.27.0, too), and 28% for 51% where prompts share the tokens of a step (27% in 0.27.0)."
    ),
    avoid=(
        "Start with `--no-enable-prefix-caching`: no state is cached or looked up; each turn of a conversation is "
        "computed whole."
    ),
    expect=(
        "On one replica with --enable-prefix-caching and MTP, ask the second turn of a long conversation twice, once with a "
        "word changed at its begin so that nothing is cached: fixed, both answers agree. What speculation does to states while "
        "it decodes is another matter: vllm.gdn-uniform-decode, and upstream pull 53919, which is open."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        AnyOf(Is("drafts from hidden states", ON), Is("chunks after a preemption", "anywhere")),
    ),
)
