"""The ops as `torch.ops.attnfix.*`: for code that torch.compile traces. Meta kernels check and write nothing."""

from __future__ import annotations

import threading

import torch

from .fixup import fixup_zero_kv_rows
from .merge import merge_attn_states

_SCHEMAS = {
    "fixup_zero_kv_rows": (
        "(Tensor(a!) out, Tensor(b!) lse, Tensor? kv_lens, Tensor cum_seq_lens, *, Tensor? cum_kv_lens=None) -> ()"
    ),
    # lse_base: "e" or "2".
    "merge_attn_states": (
        "(Tensor(a!) output, Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse, "
        "Tensor(b!)? output_lse=None, SymInt? prefill_tokens_with_context=None, Tensor? output_scale=None, *, "
        "Tensor? kv_lens=None, Tensor? cum_seq_lens=None, str lse_base='e') -> ()"
    ),
}

OPS = {op.__name__: op for op in (fixup_zero_kv_rows, merge_attn_states)}

_lock = threading.Lock()
_library: torch.library.Library | None = None


def register_torch_ops() -> None:
    """Define `torch.ops.attnfix.fixup_zero_kv_rows` and `.merge_attn_states`. Calling it again does nothing."""
    global _library
    with _lock:
        if _library is not None:
            return
        library = torch.library.Library("attnfix", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
            for key in ("CPU", "CUDA"):
                library.impl(name, OPS[name], key)
            library.impl(name, _nothing, "Meta")
        _library = library


def _nothing(*args: object, **kwargs: object) -> None:
    """Both ops only write into their arguments: there is no result whose shape a tracer would need."""
