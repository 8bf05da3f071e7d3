"""Correction of vllm.lse-log-base in FlashInfer's prefill under decode context parallelism.

`BatchDCPPrefillWrapper.run` attends to this rank's share of the context and to the new tokens, combines the context over the
ranks and merges both with base e. The combine wants base 2 from 0.12.0 (PR 28840), so the context's LSE is converted between
it and the merge; in 0.11.1-0.11.2 it works with base e, and the LSE is converted before. Both are local to the engine's
function: its own code is run on an object that looks on at both kernels, and with its name of the merge bound to one that
converts. Nothing is shared between calls.

Which row of a kernel is looked at is told from what the engine plans with, on the host: FlashInfer keeps it on the GPU alone,
and to ask there would wait for the GPU in every layer of every step until some context is seen.
"""

from __future__ import annotations

from inspect import unwrap
from itertools import accumulate
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from attnfix.compat.fix import Call
from attnfix.compat.status.fix_state import KernelObservation
from attnfix.patches.shared import lse_base
from attnfix.patches.shared.rebound import rebound

_STEP = "attnfix_planned_step"
#: On a wrapper whose kernels are both known: of a step no more is of use than whether it has tokens of a context
_KNOWN = "attnfix_both_known"
_HAS_TOKENS = "attnfix_has_tokens"


class Step(NamedTuple):
    """What a step's prefills were planned with: where each one's rows and this rank's pages of it begin, and its last page."""

    q_at: list[int]
    pages_at: list[int]
    last_page_lens: list[int]

    @property
    def has_context(self) -> bool:
        return self.pages_at[0] < self.pages_at[-1]

    @property
    def has_tokens(self) -> bool:
        """Whether a page of this rank has a token of the context: some releases plan a page for a request without any."""
        pages = zip(self.pages_at, self.pages_at[1:], self.last_page_lens)
        return any(stop - start > 1 or (stop > start and last > 0) for start, stop, last in pages)


def plan(
    call: Call, instance: Any, qo_indptr_cpu: Any, paged_kv_indptr_cpu: Any, paged_kv_last_page_len_cpu: Any,
    prefill_start: int = 0,
) -> Any:  # fmt: skip
    """Once per step, which is remembered. Up to 0.13.0 the lengths of the last pages begin with the decodes."""
    last = paged_kv_last_page_len_cpu[prefill_start:]
    step = Step(qo_indptr_cpu.tolist(), paged_kv_indptr_cpu.tolist(), last.tolist())
    setattr(instance, _HAS_TOKENS, step.has_tokens)
    if _KNOWN not in vars(instance):
        setattr(instance, _STEP, step)
    return call()


def unsettled(target: Any, instance: Any, prefill_query: Any) -> Any:
    """The paths of both kernels, or nothing."""
    context, new_tokens = paths = _paths(instance._context, instance._new_tokens, prefill_query.dtype)
    left_alone = target.left_alone
    step = vars(instance).get(_STEP)
    if step and target.observation(context) and target.observation(new_tokens):
        vars(instance).update({_STEP: None, _KNOWN: True})
    if new_tokens in left_alone and (context in left_alone or _unseen(target, context, step)):
        return None
    return paths if target.engine_function and can_be_told(target, instance._context, *paths) else None


def can_be_told(target: Any, kernel: Any, *paths: tuple) -> bool:
    """Whether the base of these paths is known, or a row can show it. Windows and soft caps are the layer's own, as the host
    knows: where no other layer shows the base, these paths are left alone, which is said once."""
    if _plain(kernel) or any(seen.needed for seen in map(target.observation, paths) if seen):
        return True
    for path in paths:
        if (capped := (*path, "with a window or a soft cap")) not in target.left_alone:
            target.observe(capped, KernelObservation("its rows tell no base, left so until another layer's do", None))
    return False


def run(call: Call, instance: Any) -> Any:
    """Returns out [tokens, heads, d].

    The base of either kernel is seen from its own rows. A rank that holds none of the context cannot see the context's: it
    goes by the new tokens', since both are FlashInfer's. Both are converted or none.
    """
    target, (context_path, new_tokens_path) = call.target, call.found
    function, context, new_tokens, step = target.function, instance._context, instance._new_tokens, vars(instance).get(_STEP)
    counted = vars(instance).get(_HAS_TOKENS, True)  # of this rank: without any, what is merged is nothing, or other ranks'
    engines_merge, base_2 = function.__globals__["merge_attn_states"], combines_base_2(function)

    def see_context(result: tuple, query: Any, cache: Any, **options: Any) -> None:
        lse, scale = result[1], options.get("k_scale") or 1.0
        row = lambda: context_row(context, step, query, cache, lse, scale)  # noqa: E731
        if base_2:
            lse_base.look(target, context_path, lse, row)
        else:
            lse_base.to_natural(target, context_path, lse, row, new_tokens_path, counted=counted)

    def see_new_tokens(result: tuple, query: Any, key: Any, *others: Any, **options: Any) -> None:
        row = lambda: new_tokens_row(new_tokens, step, query, key, result[1])  # noqa: E731
        lse_base.to_natural(target, new_tokens_path, result[1], row, context_path, counted=counted)

    def merge(out: Any, output_context: Any, lse_context: Any, *new_tokens: Any) -> Any:
        """What the context's LSE is made of was looked at in `see_context`."""
        lse_base.to_natural(target, context_path, lse_context, lambda: None, new_tokens_path, counted=counted)
        return engines_merge(out, output_context, lse_context, *new_tokens)

    parts = SimpleNamespace(**vars(instance))
    parts._context = SimpleNamespace(run=call.watch(context.run, see_context))
    parts._new_tokens = SimpleNamespace(run=call.watch(new_tokens.run, see_new_tokens))
    names = {"merge_attn_states": call.guard(merge, engines_merge)} if base_2 else {}
    return call.run(rebound(function, **names), parts)


def combines_base_2(function: FunctionType) -> bool:
    """Whether the combine over the ranks, as `function` calls it, wants an LSE of base 2."""
    return "is_lse_base_on_e" in unwrap(function.__globals__["cp_lse_ag_out_rs"]).__code__.co_varnames


def _paths(context: Any, new_tokens: Any, dtype: Any) -> tuple[tuple, tuple]:
    return (
        (type(context).__name__, getattr(context, "_backend", "?"), "DCP", "context", dtype),
        (type(new_tokens).__name__, getattr(new_tokens, "_backend", "?"), "DCP", "new tokens", dtype),
    )


def new_tokens_row(kernel: Any, step: Step | None, q: Any, k: Any, lse: Any) -> tuple[float, float] | None:
    """q: [tokens, heads, d]; k: [tokens, KV heads, d]; lse: [tokens, heads]. Nothing where nothing of the step is known."""
    if step is None:
        return lse_base.NOTHING
    if not _plain(kernel):
        return None
    return lse_base.one_row(q, k, lse, step.q_at, step.q_at, kernel._sm_scale)


def context_row(kernel: Any, step: Step | None, q: Any, cache: Any, lse: Any, k_scale: float) -> tuple[float, float] | None:
    """The same from this rank's pages; cache: (k, v), or [pages, 2, …], in the wrapper's layout."""
    if step is None:
        return lse_base.NOTHING
    if not step.has_context or not _plain(kernel):
        return None
    keys = cache[0] if isinstance(cache, tuple) else cache[:, 0]
    if kernel._kv_layout == "HND":
        keys = keys.transpose(1, 2)
    q_at, at = step.q_at, step.pages_at
    pages = zip(at, at[1:], step.last_page_lens)
    lens = [(stop - start - 1) * keys.shape[1] + n if start < stop else 0 for start, stop, n in pages]
    b = lse_base.a_request(q_at, [0, *accumulate(lens)])
    if b is None:
        return None
    rows = slice(q_at[b], q_at[b + 1])
    k = keys[kernel._paged_kv_indices_buf[at[b] : at[b + 1]].long()].flatten(0, 1)[: lens[b]]
    scale = kernel._sm_scale * k_scale
    return lse_base.one_row(q[rows], k, lse[rows], [0, rows.stop - rows.start], [0, lens[b]], scale)


def _unseen(target: Any, path: tuple, step: Step | None) -> bool:
    """Whether the context's kernel was not seen at work yet, and will not be in this step: it goes by the new tokens'."""
    return step is not None and not step.has_context and target.observation(path) is None


def _plain(kernel: Any) -> bool:
    """Whether a row's LSE is that of all its keys' scaled products."""
    return kernel._window_left < 0 and not kernel._logits_soft_cap
