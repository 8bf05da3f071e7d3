"""sglang.triton-swa-deterministic, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE

from . import wrap

_MODULE = "sglang.srt.layers.attention.triton_backend"
_BACKEND = f"{_MODULE}:TritonAttnBackend"
_KERNELS = ("sglang.srt.layers.attention.triton_ops.extend_attention", "sglang.kernels.ops.attention.extend_attention")
_PREFILL = (
    "build_unified_kv_indices", "_copy_unified_indices_kernel", "extend_attention_fwd_unified", "_fwd_kernel_unified",
)  # fmt: skip
_ROUTING = ("set_kv_buffer", "get_key_buffer", "get_value_buffer", "translate_loc_from_full_to_swa")
_POOLS = ("sglang.srt.mem_cache.memory_pool:SWAKVPool", "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool")

FIX = Fix(
    id="sglang.triton-swa-deterministic",
    title="Garbage or a crash of sliding-window models in deterministic mode (Triton)",
    symptom=(
        "With --enable-deterministic-inference and --attention-backend triton, a model with sliding-window layers (gpt-oss, "
        "MiMo-V2) gives garbage, or the server dies of an illegal memory access."
    ),
    symptoms=(GARBAGE, DIES),
    cause=(
        "Window layers keep their KV in a smaller pool with slots of its own. Deterministic prefill lists the slots of cached "
        "tokens translated to that pool, those of the new tokens untranslated: it reads keys of others or beyond the pool."
    ),
    correction="On window layers the call is shown the new tokens' slots in their own pool, as KV was written there.",
    upstream=Upstream("sgl-project/sglang", pull=24395, issue=24394),
    hardware="any GPU (--attention-backend triton --enable-deterministic-inference)",
    default=True,
    default_reason="silent wrong output or a crash; fixed upstream in the same way",
    targets=(
        Target(wrap.forward_extend_unified, needed=wrap.attends_in_window_pool, paths=(f"{_BACKEND}._forward_extend_unified",)),
    ),
    # What chooses this prefill, lists the cached tokens' slots, reads both lists, and writes the new tokens' KV
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.forward_extend",
        f"{_MODULE}:update_sliding_window_buffer",
        "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
        *(f"{module}:{name}" for module in _KERNELS for name in _PREFILL),
        *(f"{pool}.{name}" for pool in _POOLS for name in _ROUTING),
        *(f"sglang.srt.mem_cache.memory_pool:MHATokenToKVPool.get_{part}_buffer" for part in ("key", "value")),
    ),
    cost="A gather of the new tokens' slots per window layer and prefill, as upstream does; nothing in decode.",
    avoid=(
        "From 0.5.7 set `--attention-backend fa3` on Hopper; else `--disable-hybrid-swa-memory`, which leaves one pool: "
        "less KV fits, sglang.triton-window-decode remains."
    ),
    expect=(
        "On one replica with --enable-deterministic-inference --attention-backend triton, answers become sensible and equal "
        "those with --disable-hybrid-swa-memory, up to rounding."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("deterministic inference", ON),
        Is("prefill backend", "triton"),
        Is("sliding-window KV pool", ON),
    ),
)
