"""Where sglang calls the kernels that have stand-ins here, and where the real ones are on a machine with a GPU."""

from __future__ import annotations

from ..launches import EntryPoint

_FLASH = "tests.differential.sglang.flash_attention:"
_BOUND = "sgl_kernel.flash_attn:"
_WRAPPERS = "attnfix.patches.lab.emulators.flashinfer:"
_BACKEND = "sglang.srt.layers.attention.flashinfer_backend:"
_FLASHMLA = "attnfix.patches.lab.emulators.flashmla:"
_FLASHMLA_BOUND = "sglang.srt.layers.attention.flashmla_backend:"
_FLASHMLA_REAL = "sglang.kernels.ops.attention.flash_mla_interface:"


def _wrapper(name: str, stand_in: str) -> EntryPoint:
    return EntryPoint(name, stand_in, f"flashinfer:{name}", plans=("begin_forward",), runs=("forward", "forward_return_lse"))


ENTRY_POINTS = (
    *(
        EntryPoint(name, _FLASH + name, f"sglang.kernels.ops.attention.flash_attention:{name}", _BOUND + name, made=made)
        for name, made in {
            "flash_attn_with_kvcache": {"scheduler_metadata": "get_scheduler_metadata"}, "flash_attn_varlen_func": {},
        }.items()
    ),
    EntryPoint(
        "get_scheduler_metadata", _FLASH + "get_scheduler_metadata", _BOUND + "get_scheduler_metadata",
        _BOUND + "get_scheduler_metadata", like=False, alone=False,
    ),
    EntryPoint(
        "get_mla_metadata", _FLASHMLA + "schedule", _FLASHMLA_REAL + "get_mla_metadata", _FLASHMLA_BOUND + "get_mla_metadata",
        like=False, alone=False,
    ),
    EntryPoint(
        "flash_mla_with_kvcache", _FLASHMLA + "by_stride", _FLASHMLA_REAL + "flash_mla_with_kvcache",
        _FLASHMLA_BOUND + "flash_mla_with_kvcache",
        made={"tile_scheduler_metadata": "get_mla_metadata", "num_splits": "get_mla_metadata"},
    ),
    EntryPoint(
        "BatchMLAPagedAttentionWrapper", "attnfix.patches.lab.emulators.flashinfer_mla:PagedLatent",
        "flashinfer:BatchMLAPagedAttentionWrapper", writes=("out",), plans=("plan",), runs=("run",),
    ),
    EntryPoint(
        "merge_state_v2", "tests.differential.sglang.kernels:merge_state_v2", "sgl_kernel:merge_state_v2",
        "sglang.srt.layers.attention.flashattention_backend:merge_state_v2", writes=("v_merged", "s_merged"),
    ),
    EntryPoint("merge_state", _WRAPPERS + "merge_state", "flashinfer.cascade:merge_state", _BACKEND + "_safe_merge_state"),
    _wrapper("BatchPrefillWithRaggedKVCacheWrapper", _WRAPPERS + "RaggedPrefill"),
    _wrapper("BatchPrefillWithPagedKVCacheWrapper", _WRAPPERS + "PagedPrefill"),
    _wrapper("BatchDecodeWithPagedKVCacheWrapper", "tests.differential.sglang.kernels:PagedDecode"),
    EntryPoint("fast_decode_plan", _WRAPPERS + "fast_decode_plan", "flashinfer.decode:fast_decode_plan", plans=("",)),
)  # fmt: skip
