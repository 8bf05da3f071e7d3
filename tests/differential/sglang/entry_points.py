"""Where sglang calls the kernels that have stand-ins here, and where the real ones are on a machine with a GPU."""

from __future__ import annotations

from ..launches import EntryPoint

_FLASH = "tests.differential.sglang.flash_attention:"
_BOUND = "sgl_kernel.flash_attn:"
_WRAPPERS = "attnfix.patches.proofkit.emulators.flashinfer:"
_BACKEND = "sglang.srt.layers.attention.flashinfer_backend:"


def _wrapper(name: str, stand_in: str) -> EntryPoint:
    return EntryPoint(name, stand_in, f"flashinfer:{name}", plans=("begin_forward",), runs=("forward", "forward_return_lse"))


ENTRY_POINTS = (
    *(
        EntryPoint(name, _FLASH + name, f"sglang.kernels.ops.attention.flash_attention:{name}", _BOUND + name)
        for name in ("flash_attn_with_kvcache", "flash_attn_varlen_func")
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
