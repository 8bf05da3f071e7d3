"""Correction of vllm.lse-log-base in FlashInfer's prefill under decode context parallelism.

`BatchDCPPrefillWrapper.run` attends to this rank's share of the context and to the new tokens, combines the context over the
ranks and merges both with base e. The combine wants base 2 from 0.12.0 (PR 28840), so the context's LSE is converted between
it and the merge; in 0.11.1-0.11.2 it works with base e, and the LSE is converted before. Both are local to the engine's
function: its own code is run on an object that looks on at both kernels, and with its name of the merge bound to one that
converts. Nothing is shared between calls.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from itertools import accumulate
from types import FunctionType, SimpleNamespace
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches import lse_base
from attnfix.patches.rebound import rebound

_NO_CONTEXT = "attnfix_planned_without_context"


def run(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(layer, prefill_query, kv_cache, key, value, out)`; returns out [tokens, heads, d]."""
    query = args[1]
    context, new_tokens = _paths(instance._context, instance._new_tokens, query.dtype)
    settled = wrapped.state.settled
    if new_tokens in settled and (context in settled or _unseen(wrapped, context, instance._context)):
        return NOT_NEEDED
    function = wrapped.engine_function
    if function is None:  # not the innermost correction
        return NOT_NEEDED
    watch = _Watch(wrapped, instance, function, (context, new_tokens))
    result = wrapped.run(rebound(function, merge_attn_states=watch.merge), watch.parts, *args, **kwargs)
    if watch.errors:
        raise watch.errors[0]
    return result


class _Watch:
    """One call of the target.

    The base of either kernel is seen from its own rows. A rank that holds none of the context cannot see the context's: it
    goes by the new tokens', since both are FlashInfer's.
    """

    def __init__(self, call: Any, instance: Any, function: FunctionType, paths: tuple[tuple, tuple]):
        self.call, (self.context_path, self.new_tokens_path) = call, paths
        self.errors: list[Exception] = []
        self.context, self.new_tokens = instance._context, instance._new_tokens
        self.engine_names = function.__globals__
        self.parts = SimpleNamespace(**vars(instance))
        self.parts._context = SimpleNamespace(run=self.run_context)
        self.parts._new_tokens = SimpleNamespace(run=self.run_new_tokens)

    @property
    def combines_base_2(self) -> bool:
        return "is_lse_base_on_e" in unwrap(self.engine_names["cp_lse_ag_out_rs"]).__code__.co_varnames

    def run_context(self, query: Any, cache: Any, **options: Any) -> tuple:
        out, lse = self.context.run(query, cache, **options)
        self._do(self._look_at_context, query, cache, lse, options)
        return out, lse

    def run_new_tokens(self, query: Any, key: Any, value: Any, **options: Any) -> tuple:
        out, lse = self.new_tokens.run(query, key, value, **options)
        row = lambda: new_tokens_row(self.new_tokens, query, key, lse)  # noqa: E731
        self._do(lse_base.to_natural, self.call, self.new_tokens_path, lse, row)
        return out, lse

    def merge(self, out: Any, output_context: Any, lse_context: Any, output_query: Any, lse_query: Any) -> Any:
        if self.combines_base_2:
            self._do(self._convert_context, lse_context)
        return self.engine_names["merge_attn_states"](out, output_context, lse_context, output_query, lse_query)

    def _look_at_context(self, query: Any, cache: Any, lse: Any, options: dict) -> None:
        scale = options.get("k_scale") or 1.0
        lse_base.look(self.call, self.context_path, lse, lambda: context_row(self.context, query, cache, lse, scale))
        if not self.combines_base_2:
            self._convert_context(lse)

    def _convert_context(self, lse: Any) -> None:
        path = self.context_path if self.call.finding(self.context_path) else self.new_tokens_path
        lse_base.to_natural(self.call, path, lse, lambda: None)

    def _do(self, step: Callable, *args: Any) -> None:
        """What goes wrong here is no error of the engine's: it disarms the fix once the engine's function is through."""
        try:
            step(*args)
        except Exception as error:
            self.errors.append(error)


def _paths(context: Any, new_tokens: Any, dtype: Any) -> tuple[tuple, tuple]:
    return (
        (type(context).__name__, getattr(context, "_backend", "?"), "DCP", "context", dtype),
        (type(new_tokens).__name__, getattr(new_tokens, "_backend", "?"), "DCP", "new tokens", dtype),
    )


def new_tokens_row(kernel: Any, q: Any, k: Any, lse: Any) -> tuple[float, float] | None:
    """q: [tokens, heads, d]; k: [tokens, KV heads, d]; lse: [tokens, heads]. The wrapper knows where requests begin."""
    if not _plain(kernel):
        return None
    return lse_base.one_row(q, k, lse, kernel._qo_indptr_buf.tolist(), kernel._kv_indptr_buf.tolist(), kernel._sm_scale)


def context_row(kernel: Any, q: Any, cache: Any, lse: Any, k_scale: float) -> tuple[float, float] | None:
    """The same from this rank's pages; cache: (k, v), or [pages, 2, …], in the wrapper's layout."""
    if not _plain(kernel) or _is_without_context(kernel):
        return None
    planned = kernel._paged_kv_indptr_buf
    keys = cache[0] if isinstance(cache, tuple) else cache[:, 0]
    if kernel._kv_layout == "HND":
        keys = keys.transpose(1, 2)
    at, last = planned.tolist(), kernel._paged_kv_last_page_len_buf.tolist()
    lens = [(stop - start - 1) * keys.shape[1] + n if start < stop else 0 for start, stop, n in zip(at, at[1:], last)]
    q_at = kernel._qo_indptr_buf.tolist()
    b = lse_base.a_request(q_at, [0, *accumulate(lens)])
    if b is None:
        if not getattr(kernel, "is_cuda_graph_enabled", False):
            setattr(kernel, _NO_CONTEXT, planned)
        return None
    rows = slice(q_at[b], q_at[b + 1])
    k = keys[kernel._paged_kv_indices_buf[at[b] : at[b + 1]].long()].flatten(0, 1)[: lens[b]]
    scale = kernel._sm_scale * k_scale
    return lse_base.one_row(q[rows], k, lse[rows], [0, rows.stop - rows.start], [0, lens[b]], scale)


def _unseen(call: Any, path: tuple, kernel: Any) -> bool:
    """Whether the context's kernel was not seen at work yet, and will not be in this step: it goes by the new tokens'."""
    return _is_without_context(kernel) and call.finding(path) is None


def _is_without_context(kernel: Any) -> bool:
    """Whether this plan was seen to hold no context: to look again would wait for the GPU in every layer.

    What is planned is another tensor in every step, but in a CUDA graph, where nothing is kept.
    """
    return vars(kernel).get(_NO_CONTEXT, _NO_CONTEXT) is kernel._paged_kv_indptr_buf


def _plain(kernel: Any) -> bool:
    """Whether a row's LSE is that of all its keys' scaled products."""
    return kernel._window_left < 0 and not kernel._logits_soft_cap
