"""A dispatch mode that fails on every operator that would make the host wait for a GPU."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class NoSync(TorchDispatchMode):
    """Fails where the host reads a tensor, or where a result's shape depends on data. `host` tensors may be read."""

    FORBIDDEN = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "unique", "equal", "is_pinned")

    def __init__(self, *host: torch.Tensor):
        super().__init__()
        self._host = {tensor.untyped_storage().data_ptr() for tensor in host}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        inputs = [argument for argument in args if isinstance(argument, torch.Tensor)]
        of_host = bool(inputs) and all(tensor.untyped_storage().data_ptr() in self._host for tensor in inputs)
        assert of_host or name not in self.FORBIDDEN, f"host sync: {func}"
        assert not (name == "_to_copy" and kwargs.get("device") is not None), f"moves a tensor: {func}"
        mask_index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        assert not mask_index, "a bool index makes the host wait for its size"
        result = func(*args, **kwargs)
        if of_host and isinstance(result, torch.Tensor):
            self._host.add(result.untyped_storage().data_ptr())
        return result
