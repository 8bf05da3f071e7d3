"""Correction of sglang.encoder-prefix-cache.

Before the first text is queued, the radix cache of an encoder's server is switched off, as it is where the engine builds it
with `disable`. Chunked prefill is, too: what a batch may hold then bounds `max_prefill_tokens`.
"""

from __future__ import annotations

import sys
from typing import Any

#: Models whose tokens attend to the whole text. The engine switches off both for EmbeddingGemma itself, where it knows it
ENCODERS = frozenset((
    "BertModel", "BertForSequenceClassification", "Contriever", "XLMRobertaModel", "XLMRobertaForSequenceClassification",
))  # fmt: skip
_TREES = "RadixCache", "UnifiedRadixCache"


def reuses_or_splits(target: Any, instance: Any) -> bool:
    """Whether texts of an encoder may take cached prefixes, or be prefilled in chunks."""
    tree = instance.tree_cache
    caches = not getattr(tree, "disable", True)
    if not caches and instance.chunked_prefill_size is None:
        return False
    if ENCODERS.isdisjoint(instance.model_config.hf_config.architectures or ()):
        return False
    if caches and (type(tree).__name__ not in _TREES or any(getattr(tree, name, None) for name in _PARTNERS)):
        target.leave_out("a HiCache, LMCache, FlexKV or another special radix cache cannot be switched off while it runs")
        return False
    if instance.chunked_req is not None or (caches and (tree.evictable_size() or tree.protected_size())):
        target.leave_out("texts were cached or split before the fix was there")
        return False
    return True


#: What a tree has where its KV goes to host memory, storage or another cache
_PARTNERS = "cache_controller", "linker"


def handle_embedding_request(call: Any, instance: Any) -> Any:
    if not getattr(instance.tree_cache, "disable", True):
        switch_off(instance.tree_cache)
        in_order(instance.policy)
    if instance.chunked_prefill_size is not None:
        keep_whole(instance)
    call.corrected()
    return call()


def switch_off(tree: Any) -> None:
    """From 0.5.18 to 0.5.21, a tree that is off says that it is no tree. Up to 0.5.19, no caller minds; then locks do."""
    tree.disable = True
    if getattr(tree, "is_chunk_cache", _no)():
        tree.is_chunk_cache = _no


def in_order(policy: Any) -> None:
    """First come, first served, as in a server without the cache: texts would wait for ever until a common prefix is cached."""
    kinds = vars(sys.modules[type(policy).__module__])
    if isinstance(policy.policy, kinds["CacheAwarePolicy"]):
        policy.policy = kinds["CacheAgnosticPolicy"].FCFS


def _no() -> bool:
    return False


def keep_whole(scheduler: Any) -> None:
    """A text that does not fit into what is left of a batch waits for the next; one that fits into none has one of its own.

    Without chunks, what is left has to exceed a text by a token.
    """
    scheduler.max_prefill_tokens = min(scheduler.max_prefill_tokens, scheduler.chunked_prefill_size + 1)
    scheduler.chunked_prefill_size = None
