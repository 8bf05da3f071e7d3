"""Correction of sglang.window-recovery.

A node that another request has locked keeps its slots. What it lacks are the window layers' slots: those of the request that is
cached go over to it, and its other slots are free, as those of any prefix that is cached twice. The engine frees these itself
once the node has all KV.

A chunk in flight writes its KV through the map from slots to window slots. So its slots are given back when the request is
cached next, or later with pipeline parallelism: by then the chunk has ended, and no other request can get them before. If its
request is gone meanwhile, as up to 0.5.3.post3 one that was retracted, they are given back when another one is cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

#: In a tree: what is given back when a request is cached next, and what a chunk in flight hands over
_HELD, _TAKEN = "_attnfix_held", "_attnfix_taken"


class Stretch(NamedTuple):
    """A node without window KV that the key has from token `begin` to `end`; its key may be longer."""

    node: Any
    begin: int
    end: int


class Held(NamedTuple):
    """req: whose chunk is in flight; root: of the tree as it was then; taken: slots whose window slots went over;
    freed: slots to free, as the engine does; age: chunks of the request that were launched since."""

    req: Any
    root: Any
    taken: list[Any]
    freed: list[Any]
    age: int = 0


def has_locked(tree: Any) -> bool:
    """Whether a node may lack window KV and be locked: sizes alone tell where none does."""
    return tree.full_protected_size_ > tree.swa_protected_size_ and len(tree.full_lru_list.cache) > len(tree.swa_lru_list.cache)


def takes_locked(
    target: Any, instance: Any, node: Any, key: Any, update_kv_after_len: int, swa_evicted_seqlen: int = 0
) -> tuple[Stretch, ...]:
    """Nodes whose slots the engine would free though others have locked them."""
    if not has_locked(instance):
        return ()
    least = max(update_kv_after_len, swa_evicted_seqlen)
    along = list(_along(instance, node, key))
    if not any(locked(one) and begin + len(one.key) > least for one, begin in along):
        return ()
    return tuple(found for found in _matched(instance, along, key) if locked(found.node) and found.end > least)


def locked(node: Any) -> bool:
    return node.swa_tombstone and node.full_lock_ref > 0


def _along(tree: Any, node: Any, key: Any) -> Iterator[tuple[Any, int]]:
    """Nodes that a key leads to, and where they begin in it; only their first pages are known to be the key's."""
    begin, page = 0, tree.page_size
    child_key = getattr(tree, "get_child_key_fn", None) or (lambda part: part.child_key(page))  # to 0.5.10, later
    while begin < len(key):
        node = node.children.get(child_key(key[begin : begin + page]))
        if node is None:
            return
        yield node, begin
        begin += len(node.key)


def _matched(tree: Any, along: list[tuple[Any, int]], key: Any) -> Iterator[Stretch]:
    """Those of them that the key has, and how much of the last one."""
    for node, begin in along:
        part = key[begin : begin + len(node.key)]
        match = getattr(tree, "key_match_fn", None)
        same = match(node.key, part) if match else node.key.match(part, page_size=tree.page_size)
        yield Stretch(node, begin, begin + same)
        if same < len(node.key):
            return


def insert_helper(call: Any, instance: Any, value: Any, swa_evicted_seqlen: int = 0) -> Any:
    """`value` [tokens of the key]: slots of the request, int; those before `swa_evicted_seqlen` have no window slots."""
    for node, begin, end in call.found:
        if end < begin + len(node.key):
            node = instance._split_node(node.key, node, end - begin)
        if begin < swa_evicted_seqlen:
            instance._split_node(node.key, node, swa_evicted_seqlen - begin)
            begin = swa_evicted_seqlen
        take(instance, node.value, value[begin:end])
        node.swa_tombstone = False
        instance.swa_lru_list.insert_mru(node)
        instance.swa_evictable_size_ += end - begin
    call.corrected()
    return call()


def take(tree: Any, kept: Any, slots: Any) -> None:
    """The window slots of `slots` [n] go over to `kept` [n]."""
    mapping = tree.token_to_kv_pool_allocator.full_to_swa_index_mapping
    mapping[kept.long()] = mapping[slots.long()]
    taken = vars(tree).get(_TAKEN)
    if taken is None:
        mapping[slots.long()] = 0
    else:
        taken.append(slots)


def in_flight(req: Any) -> int:
    """Chunks of the request that were launched, and whose results are not processed yet. The second name is of 0.5.13."""
    return getattr(req, "is_chunked", 0) or getattr(req, "inflight_middle_chunks", 0)


def holds_back(target: Any, instance: Any, req: Any) -> bool:
    return _HELD in vars(instance) or (in_flight(req) > 0 and has_locked(instance))


def cache_unfinished_req(call: Any, instance: Any, req: Any) -> Any:
    """An allocator of an NPU frees in its own way, and has steps of another kind: there, slots are given back at once."""
    give_back(instance, req, in_flight(req))
    if not in_flight(req) or type(instance.token_to_kv_pool_allocator).__name__ != "SWATokenToKVPoolAllocator":
        return call()
    allocator = instance.token_to_kv_pool_allocator
    state = allocator.is_not_in_free_group, allocator.free_group
    allocator.is_not_in_free_group, allocator.free_group = False, []
    taken: list[Any] = []
    vars(instance)[_TAKEN] = taken
    try:
        return call()
    finally:
        held = Held(req, instance.root_node, taken, allocator.free_group)
        allocator.is_not_in_free_group, allocator.free_group = state
        del vars(instance)[_TAKEN]
        if taken:
            vars(instance).setdefault(_HELD, []).append(held)
        else:
            free(instance, held)


def holds(target: Any, instance: Any, req: Any) -> bool:
    return _HELD in vars(instance)


def cache_finished_req(call: Any, instance: Any, req: Any) -> Any:
    give_back(instance, req)
    return call()


def give_back(tree: Any, req: Any, flying: int = 0) -> None:
    """Free what the request was cached with before its last `flying` chunks, and what others were that have none in flight."""
    due: list[Any] = []
    later: list[Any] = []
    for one in vars(tree).pop(_HELD, ()):
        if one.req is req:
            one = one._replace(age=one.age + 1)
            waits = one.age < flying
        else:
            waits = in_flight(one.req) > 0
        (later if waits else due).append(one)
    if later:
        vars(tree)[_HELD] = later
    for one in due:
        free(tree, one)


def free(tree: Any, held: Held) -> None:
    """A tree that was emptied since then has all slots back."""
    if held.root is not tree.root_node:
        return
    allocator = tree.token_to_kv_pool_allocator
    for slots in held.taken:
        allocator.full_to_swa_index_mapping[slots.long()] = 0
    for slots in held.freed:
        allocator.free(slots)
