"""Ways to break recurrent layers and drafters, as this harness has them, and faults that corrections once had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import torch

from attnfix.patches.lab.proof import replaced

from . import drafter, recurrent


@contextmanager
def broken(owner: Any, name: str, other: Callable[..., Any]) -> Iterator[None]:
    """`other(former, *args)` in the place of a function of this harness."""
    former = getattr(owner, name)
    with replaced(owner, name, lambda *args, **kwargs: other(former, *args, **kwargs)):
        yield


def _mixer(name: str, other: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: broken(import_module(recurrent.MIXER), name, other)


def _no_states(former: Any, *args: Any, initial_states: Any = None, **kwargs: Any) -> Any:
    """A chunk begins with no state."""
    return former(*args, initial_states=None, **kwargs)


def _late_state(former: Any, state: Any, *args: Any, dst_state_batch_indices: Any, **kwargs: Any) -> Any:
    """A state goes to the block behind its own."""
    return former(state, *args, dst_state_batch_indices=(dst_state_batch_indices + 1) % len(state), **kwargs)


def _first_accepted(former: Any, *args: Any, num_accepted_tokens: Any = None, **kwargs: Any) -> Any:
    """A verification goes on from the state behind the first token, whatever was accepted."""
    one = None if num_accepted_tokens is None else torch.ones_like(num_accepted_tokens)
    return former(*args, num_accepted_tokens=one, **kwargs)


def _own_words(former: Any, calls: Any, order: Any, rows: Any, *more: Any) -> Any:
    """A drafter is thought to read a token at its own place."""
    return former(calls, order, {name: one._replace(known=[0, *one.known]) for name, one in rows.items()}, *more)


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no initial states": _mixer("mamba_chunk_scan_combined_varlen", _no_states),
    "no window before a chunk": _mixer(
        "causal_conv1d_fn",
        lambda former, *args, has_initial_state, **kwargs: former(
            *args, has_initial_state=torch.zeros_like(has_initial_state), **kwargs
        ),
    ),
    "states one block on": _mixer("selective_state_update", _late_state),
    "accepted drafts are not counted": _mixer("selective_state_update", _first_accepted),
    "a drafter reads its own words": lambda: broken(drafter, "compare", _own_words),
}
SEEN_IN: dict[str, dict[str, Any]] = {
    "no initial states": {"recurrent": "mamba2"},
    "no window before a chunk": {"recurrent": "mamba2"},
    "states one block on": {"recurrent": "mamba2"},
    "accepted drafts are not counted": {"recurrent": "mamba2", "speculative-method": "eagle"},
    "a drafter reads its own words": {"speculative-method": "eagle"},
}


def _page_counts(name: str, former: Callable[..., Any]) -> Callable[[], None]:
    return lambda: setattr(import_module("attnfix.patches.vllm.dcp_page_counts.wrap"), name, former)


FAULTS: dict[str, Callable[[], None]] = {
    "0.1.0: interleave": _page_counts("interleave", lambda builder: builder.dcp_kv_cache_interleave_size),
    "0.1.0: metadata built twice": _page_counts("with_own_lens", lambda common: common),
}
