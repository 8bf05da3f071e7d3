"""vllm.mamba-state-column, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

from . import wrap

_STATE = "vllm.v1.worker.gpu.model_states.mamba_hybrid:MambaHybridModelState"
_COPIES = "vllm.v1.worker.mamba_utils"
_UTILS = "vllm.v1.core.kv_cache_utils"

FIX = Fix(
    id="vllm.mamba-state-column",
    title="Garbage or a crash on a prefix hit of a hybrid model whose drafter has a window",
    symptom=(
        "A hybrid model answers a prompt whose prefix is cached with garbage, or the server dies of an illegal memory access. "
        "Short prefixes give the first, long ones the second. The drafter (DFlash, EAGLE) has a sliding window, or the model "
        "itself has such layers or sparse attention (Qwen3.8-Flash-Next). Their blocks are shorter than those of recurrent "
        "states."
    ),
    symptoms=(CACHED_PREFIX, DIES),
    cause=(
        "Model Runner V2 looks up which block holds the state behind a cached prefix. It divides the prefix by "
        "cache_config.block_size. At startup the engine core lowers that to the shortest block of all layers, but a block of "
        "states is as long as before. So the column is too far to the right: it holds no block, or that of another request."
    ),
    correction=(
        "Where the two sizes give another column, the column is written once more, by the size of a block of states. Where "
        "they give the same one, nothing is done."
    ),
    upstream=Upstream("vllm-project/vllm", pull=55601, issue=53142),
    hardware="any GPU (hybrid models with prefix caching; Model Runner V2; one GPU for each engine core)",
    default=True,
    default_reason="silent wrong output, or a dead server; later releases divide by the same size",
    targets=(
        Target(
            wrap.add_request,
            needed=wrap.continues_from_another_column,
            paths=(f"{_STATE}.add_request",),
        ),
    ),
    # Where a prompt is cut, who refuses to start with two sizes, and who goes by the column
    witnesses=(
        "vllm.v1.core.sched.scheduler:Scheduler._mamba_block_aligned_split",
        f"{_STATE}.__init__",
        f"{_STATE}.preprocess_state",
        f"{_STATE}._get_mamba_group_info",
        "vllm.v1.worker.gpu.model_states.default:DefaultModelState.add_request",
        f"{_COPIES}:preprocess_mamba_align_fused_kernel",
        f"{_COPIES}:precopy_mamba_align_fused_kernel",
        f"{_UTILS}:resolve_kv_cache_block_sizes",
        "vllm.model_executor.layers.mamba.abstract:MambaBase.get_kv_cache_spec",
    ),
    cost="Less than 1 µs of host time per request that begins; behind such a prefix, one write of four bytes on the GPU.",
    avoid=("Start with `--no-enable-prefix-caching`: no state is looked up behind a prefix; each prompt is computed whole."),
    expect=(
        "On one replica with such a drafter, ask the second turn of a long conversation twice, once with a word changed at its "
        "begin so that nothing is cached: fixed, both answers agree. 0.28.0 has the same fault and another one, which caches "
        "states at the wrong positions, so attnfix leaves it alone there: upgrade, or serve without prefix caching."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cached prefixes of a hybrid model", ON),
        Is("model runner", "V2"),
        Is("blocks beside those of states", "shorter"),
    ),
)
