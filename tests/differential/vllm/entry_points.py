"""Where vLLM calls the kernels that have stand-ins here, and where the real ones are on a machine with a GPU."""

from __future__ import annotations

from attnfix.patches.lab.emulators import MergeAttnStates

from ..launches import EntryPoint

_OURS = "tests.differential.vllm.kernels:"
_WRAPPERS = "tests.differential.vllm.flashinfer:"
_FLASH = "vllm.vllm_flash_attn:"
_OPS = "vllm._custom_ops:"
_MLA = "vllm.v1.attention.ops.flashmla:"
_LOAD = ("vllm", "vllm._custom_ops")
#: The same as `kernels.stand_in` binds
merge_attn_states = MergeAttnStates()


def _op(name: str, *writes: str, keeps: bool = False, stand_in: str = "", named: str = "") -> EntryPoint:
    return EntryPoint(name, _OURS + (stand_in or name), _OPS + name, named=named, load=_LOAD, writes=writes,
                      keeps=writes if keeps else ())  # fmt: skip


def _compiled(name: str, stand_in: str, *writes: str) -> EntryPoint:
    operator = f"torch:ops._C.{name}"
    return EntryPoint(name, stand_in, operator, operator, load=_LOAD, writes=writes)


ENTRY_POINTS = (
    EntryPoint(
        "flash_attn_varlen_func", _OURS + "flash_attn_varlen_func", _FLASH + "flash_attn_varlen_func", load=_LOAD,
        writes=("out",), made={"scheduler_metadata": "get_scheduler_metadata"},
    ),
    EntryPoint(
        "get_scheduler_metadata", _OURS + "get_scheduler_metadata", _FLASH + "get_scheduler_metadata", load=_LOAD, like=False
    ),
    _op("reshape_and_cache_flash", "key_cache", "value_cache", keeps=True),
    _op("concat_and_cache_mla", "cache", keeps=True),
    _op("gather_and_maybe_dequant_cache", "dst", stand_in="gather_cache", named="gather_and_maybe_dequant_cache"),
    _op("cp_gather_cache", "dst", stand_in="gather_cache", named="cp_gather_cache"),
    _compiled("merge_attn_states", "tests.differential.vllm.entry_points:merge_attn_states", "output", "output_lse"),
    _compiled("static_scaled_fp8_quant", _OURS + "static_scaled_fp8_quant", "out"),
    EntryPoint(  # from 0.17 on it returns no tensor, but an object that the launch itself fills
        "get_mla_metadata", _OURS + "get_mla_metadata", _MLA + "get_mla_metadata", load=_LOAD, like=False, alone=False
    ),
    EntryPoint(
        "flash_mla_with_kvcache", _OURS + "flash_mla_with_kvcache", _MLA + "flash_mla_with_kvcache", load=_LOAD,
        made={"tile_scheduler_metadata": "get_mla_metadata"},
    ),
    *(
        EntryPoint(
            real, _WRAPPERS + stand_in, f"flashinfer:{real}", writes=("out", "lse"), plans=("plan",), runs=("run",),
            device=("paged_kv_indices", "indices"),
        )
        for real, stand_in in {
            "BatchPrefillWithPagedKVCacheWrapper": "PagedPrefill",
            "BatchAttentionWithAttentionSinkWrapper": "SinkPrefill",
            "BatchPrefillWithRaggedKVCacheWrapper": "Ragged",
            "BatchDecodeWithPagedKVCacheWrapper": "PagedDecode",
        }.items()
    ),
    EntryPoint(
        "fast_decode_plan", _WRAPPERS + "fast_decode_plan", "flashinfer.decode:fast_decode_plan", plans=("",),
        device=("indices",), buffers={
            "indptr": "paged_kv_indptr_buffer", "indices": "paged_kv_indices_buffer",
            "last_page_len": "paged_kv_last_page_len_buffer",
        },
    ),
)  # fmt: skip
