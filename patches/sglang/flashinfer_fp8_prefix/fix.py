"""sglang.flashinfer-fp8-prefix, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, KV_SCALES, LONG_PROMPT

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_BACKEND = f"{_MODULE}:FlashInferAttnBackend"
_POOL = "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool"

FIX = Fix(
    id="sglang.flashinfer-fp8-prefix",
    title="Wrong answers on a prefix hit with a calibrated FP8 KV cache (FlashInfer)",
    symptom=(
        "With an FP8 KV cache and calibrated scales, answers behind a cached prefix are wrong or gibberish. So are answers to "
        "prompts that are prefilled in several steps. The first answer to a short prompt is right. No error."
    ),
    symptoms=(KV_SCALES, CACHED_PREFIX, LONG_PROMPT),
    cause=(
        "KV is divided by the layer's scales when it is stored. Prefill behind a prefix attends to the new tokens and to the "
        "cache apart and merges both. The part that reads the cache is called without the scales."
    ),
    correction="That call gets the layer's scales, as decode and paged prefill do.",
    upstream=Upstream("sgl-project/sglang", issue=18904),
    hardware="any GPU with FlashInfer attention (default on A100, L40S and RTX; elsewhere --attention-backend flashinfer)",
    default=True,
    default_reason="silent wrong output; later releases pass the same scales; proven with real kernels on an H200 (0.5.13)",
    targets=(Target(wrap.forward_extend, needed=wrap.reads_scaled_prefix, paths=(f"{_BACKEND}.forward_extend",)),),
    # What decides that prefill is split, and what stores KV by which scales
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}._get_wrapper_idx",
        f"{_BACKEND}._kv_write_scales",
        f"{_MODULE}:MultiItemScoringParams.is_enabled",
        "sglang.srt.mem_cache.memory_pool:KVWriteLoc",
        f"{_POOL}.set_kv_buffer",
        f"{_POOL}.get_kv_buffer",
    ),
    cost="A look at the layer's scales per layer and prefill step; two multiplications in a prefill behind a prefix.",
    avoid=(
        "From 0.5.11 set `SGLANG_FLASHINFER_USE_PAGED=1`: the paged kernel gets the scales; earlier "
        "`--attention-backend triton`. Prefill slows."
    ),
    expect=(
        "On one replica, send a long prompt twice at temperature 0: the second answer, whose prefix is cached, becomes equal "
        "to the first up to rounding."
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("prefill backend", "flashinfer"),
        Is("cached prefix", ON),
        Is("KV cache scales", "calibrated FP8"),
    ),
)
