"""Correction of sglang.mamba-empty-node."""

from __future__ import annotations

from typing import Any


def cuts_a_page(target: Any, instance: Any, params: Any) -> bool:
    """Whether the part of a prompt that may be matched ends within its first page, and that page is cached.

    The engine finds the page by the prompt's tokens, also by those behind that part. Values of the host alone.
    """
    key, page = params.key, instance.page_size
    return ends_within(key, page) and key.child_key(page) in instance.root_node.children


def ends_within(key: Any, page: int) -> bool:
    return 0 < len(key) < page <= len(key.token_ids)


def match_pre_processor(call: Any, instance: Any) -> Any:
    """Returns the key that is matched, or None where nothing is."""
    key = matched(call())
    call.corrected()
    return key


def matched(key: Any) -> Any:
    """A page is matched whole or not at all."""
    return None
