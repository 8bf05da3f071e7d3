"""Correction of sglang.fa3-encoder-replay.

The slots of a text lie behind its request's encoder in a row of `req_to_token`. The engine reads as many columns from there as
the longest text may have, and these can end behind the row. There, the row's last column is read instead: it lies behind the
request's own text, so that no kernel reads what it says.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute


def has_encoders(target: Any, instance: Any, forward_batch: Any) -> bool:
    return forward_batch.encoder_lens is not None and plain(instance, forward_batch.spec_info)


def has_encoders_in_graph(target: Any, instance: Any, encoder_lens: Any, spec_info: Any) -> bool:
    return encoder_lens is not None and plain(instance, spec_info)


def plain(backend: Any, spec_info: Any) -> bool:
    """Whether the columns alone are at fault. In pages of several tokens and in a pool with translated slots, texts behind an
    encoder are laid out wrong, too: a server that dies there is better than one that goes on. Drafts were not read."""
    translator = getattr(backend, "kv_index_translator", None)
    return backend.page_size == 1 and spec_info is None and not getattr(translator, "is_translating", False)


def init_forward_metadata(call: Call, instance: Any) -> Any:
    """Without a CUDA graph: the engine asks the pool for its table."""
    shown = copy(instance.req_to_token_pool)
    shown.req_to_token = bounded(shown.req_to_token)
    with attribute(instance, "req_to_token_pool", shown):
        result = call()
    _count(call, instance)
    return result


def apply_cuda_graph_metadata(call: Call, instance: Any) -> Any:
    """Capture and replay of a decode graph."""
    with attribute(instance, "req_to_token", bounded(instance.req_to_token)):
        result = call()
    _count(call, instance)
    return result


def _count(call: Call, instance: Any) -> None:
    """Both lengths are the host's by now."""
    metadata = instance.forward_metadata
    if metadata.encoder_max_seq_len_k + metadata.max_seq_len_k > instance.req_to_token.shape[1]:
        call.corrected(rows=metadata.cache_seqlens_int32.shape[0])


def bounded(req_to_token: Any) -> Any:
    """The same memory, whose columns end at the last one for whoever names each column by itself."""
    return req_to_token.as_subclass(_bounded_table())


def last_column(req_to_token: Any) -> int:
    return int(req_to_token.shape[1]) - 1


@cache
def _bounded_table() -> Any:
    import torch

    class BoundedTable(torch.Tensor):
        __torch_function__: Any = torch._C._disabled_torch_function_impl  # what is made of it is a plain tensor

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, tuple) and isinstance(index[-1], torch.Tensor):
                index[-1].clamp_(max=last_column(self))  # in place: a copy can have hundreds of MB
            return super().__getitem__(index)

    return BoundedTable
