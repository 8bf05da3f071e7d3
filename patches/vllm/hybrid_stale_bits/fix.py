"""vllm.hybrid-stale-bits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_CORE, _INTERFACE = "vllm.v1.core", "vllm.v1.kv_cache_interface"

FIX = Fix(
    id="vllm.hybrid-stale-bits",
    title="NaN that grows with uptime: hybrid models read states as KV",
    symptom="Answers are right at first. With uptime they turn into one repeated token, as blocks of states become KV.",
    symptoms=(GARBAGE,),
    cause=(
        "Recurrent states and KV share one pool of blocks. A block of float32 states becomes KV with its bits, some of which "
        "read as NaN. So do bits of bfloat16 in an FP8 KV cache. Attention multiplies what is behind a request's last token by "
        "zero, which leaves NaN."
    ),
    correction=(
        "Before a step, the blocks of KV that requests get in it are cleared, at the place where 0.17.1 does it. Blocks with "
        "tokens of a cached prefix or a connector stay, even where they are filled in part. So do blocks of states, pools "
        "whose states have the format of KV, ranks of a pipeline without states, and the CPU."
    ),
    upstream=Upstream("vllm-project/vllm", pull=35219, issue=27264),
    hardware="any GPU (hybrid models whose states are float32, or whose KV cache is FP8)",
    default=True,
    default_reason="silent wrong output; 0.17.1 clears the same blocks at the same place",
    targets=(Target(wrap.clear_blocks, needed=wrap.blocks_to_clear, paths=(f"{_RUNNER}._update_states",)),),
    # Which blocks requests get, what a block of the pool is, and who clears it
    witnesses=(
        f"{_RUNNER}.initialize_kv_cache_tensors",
        f"{_RUNNER}._allocate_kv_cache_tensors",
        f"{_RUNNER}._reshape_kv_cache_tensors",
        f"{_RUNNER}._update_hybrid_attention_mamba_layout",
        "vllm.v1.worker.utils:KVBlockZeroer",
        f"{_INTERFACE}:MambaSpec",
        f"{_INTERFACE}:KVCacheConfig",
        f"{_CORE}.sched.output:NewRequestData",
        f"{_CORE}.sched.output:CachedRequestData",
    ),
    cost=(
        "Some µs per step of a hybrid model. In a step in which a request gets a block of KV, one copy of its number and one "
        "launch for each tensor of the pool: 0.2 ms of the host for eight, beside an H200. No wait for the GPU."
    ),
    avoid="Leave `--kv-cache-dtype` and `--mamba-ssm-cache-dtype` at `auto`; where states are float32, restart at times.",
    expect=(
        "On one replica that has served for hours, answers of a hybrid model become those of a server that has just started."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("states in another format than KV", ON),
        Is("attention takes in masked values", ON),
    ),
)
