"""Correction of sglang.fa3-context-wall.

A backend lays its page tables out for `max_context_len` tokens, and fills them up to it. The rows of `req_to_token`, from which
they are filled, are wider where tokens are drafted: what is drafted near the limit has its slots there.
"""

from __future__ import annotations

from typing import Any


def init(call: Any, instance: Any, model_runner: Any) -> Any:
    """`FlashAttentionBackend(model_runner, …)`."""
    result = call()
    width = addressable(instance)
    if width > instance.max_context_len and may_capture(model_runner.server_args):
        instance.max_context_len = width
        if hasattr(instance, "max_num_pages"):  # from 0.5.15: the same, in pages
            instance.max_num_pages = -(-width // instance.page_size)
        call.corrected()
    return result


def addressable(backend: Any) -> int:
    """Tokens that a request can have slots for: more than the context only where tokens are drafted."""
    drafts = getattr(backend, "speculative_num_draft_tokens", None)
    return backend.req_to_token.shape[1] if drafts else backend.max_context_len


def may_capture(server_args: Any) -> bool:
    """Whether there may be a CUDA graph: the tables of others are as wide as their requests. From 0.5.21 on, a server of
    prefills alone captures graphs when it becomes one of decodes."""
    apart = getattr(server_args, "disaggregation_mode", None) not in (None, "null")
    return apart or not getattr(server_args, "disable_cuda_graph", False)
