"""The CUDA kernels behind the fixes, usable on their own.

- `fixup_zero_kv_rows`: rows of requests without KV get out 0 and LSE -inf.
- `merge_attn_states`: merge two partial attention results by their LSE.
- `kernel_status`: which path served each op in this process, and why.
- `register_torch_ops`: the same ops as `torch.ops.attnfix.*`, with meta kernels.

CUDA tensors run compiled kernels on the current stream; CPU tensors, and CUDA tensors where no kernel can be loaded,
run the torch reference. Importing this package imports neither torch nor an engine; the first use of an op does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .usage import kernel_status

if TYPE_CHECKING:
    from .fixup import fixup_zero_kv_rows
    from .merge import merge_attn_states
    from .torch_ops import register_torch_ops

__all__ = ["fixup_zero_kv_rows", "kernel_status", "merge_attn_states", "register_torch_ops"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import torch_ops

    torch_ops.register_torch_ops()
    value: object = torch_ops.OPS.get(name, torch_ops.register_torch_ops)
    globals()[name] = value
    return value
