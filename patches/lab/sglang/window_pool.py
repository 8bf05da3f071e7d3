"""KV of models with sliding-window layers for proofs: the engine's own pool that routes layers to full and window KV, and its
translation of slots. The two pools behind it are plain tensors; behind the window pool's lie rows of others, so that what a
stock side reads there stays inside memory of the proof.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import device

_POOLS = ("sglang.srt.mem_cache.memory_pool", "sglang.srt.mem_cache.swa_memory_pool")
TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
MODULES = (*_POOLS, TRANSLATOR)
MAY_LACK = (_POOLS[1], TRANSLATOR)
FULL, SLIDING = 0, 1  # layers
HEADS, DIM = 1, 32


class Pool:
    """KV of `cached` tokens of each request, and room for `new` ones: each in the full pool, and those that a `window` still
    reaches in the other one, too. Slot 0 is padding.

    keys, values: of each request, [tokens, HEADS, DIM], what the cache holds.
    """

    def __init__(self, modules: dict[str, Any], draw: Any, cached: list[int], new: list[int], window: int, context: int):
        import torch

        room = len(cached)
        slots = room * context
        self.new = list(zip(cached, new))
        self.req_to_token = (torch.randperm(slots, generator=draw) + 1).view(room, context).int()
        spans = [slice(max(0, n - window), n + more) for n, more in self.new]
        reached = torch.cat([row[span] for row, span in zip(self.req_to_token, spans)]).long()
        self.mapping = torch.zeros(slots + 2, dtype=torch.int64)
        self.mapping[reached] = torch.randperm(len(reached), generator=draw) + 1
        self.mapping[-1] = -1  # what index -1 means
        self.keys, self.values = ([torch.randn(n, HEADS, DIM, generator=draw).half() for n in cached] for _ in "kv")
        full, sliding = Rows(draw, slots + 1), Rows(draw, len(reached) + 1, behind=slots)
        for b, n in enumerate(cached):
            own = self.req_to_token[b, :n].long()
            for rows, where in ((full, own), (sliding, self.mapping[own])):
                rows.set_kv_buffer(None, where, self.keys[b], self.values[b])
        self.keys, self.values = ([x.to(device()) for x in part] for part in (self.keys, self.values))
        self.req_to_token, self.mapping = self.req_to_token.to(device()), self.mapping.to(device())
        self.kv = _routed(modules, full, sliding, self.mapping)
        self.allocator = SimpleNamespace(translate_loc_from_full_to_swa=self.kv.translate_loc_from_full_to_swa)

    @property
    def out_cache_loc(self) -> Any:
        """Slots of the new tokens in the full pool, int64 [tokens]."""
        import torch

        return torch.cat([self.req_to_token[b, n : n + more] for b, (n, more) in enumerate(self.new)]).long()


class Rows:
    """One pool of KV, [slots, HEADS, DIM]; `behind` rows that belong to others follow."""

    start_layer = 0

    def __init__(self, draw: Any, slots: int, behind: int = 0):
        import torch

        self.k, self.v = (torch.randn(slots + behind, HEADS, DIM, generator=draw).half().to(device())[:slots] for _ in "kv")

    def get_key_buffer(self, layer_id: int) -> Any:
        return self.k

    def get_value_buffer(self, layer_id: int) -> Any:
        return self.v

    def get_kv_buffer(self, layer_id: int) -> tuple[Any, Any]:
        return self.k, self.v

    def set_kv_buffer(self, layer: Any, loc: Any, k: Any, v: Any, *scales: Any, layer_id_override: int = 0) -> None:
        loc = loc.to(self.k.device).long()
        self.k[loc], self.v[loc] = k.to(self.k), v.to(self.v)


def _routed(modules: dict[str, Any], full: Rows, sliding: Rows, mapping: Any) -> Any:
    """The engine's pool of both, without its allocation of GPU memory."""
    kind = next(modules[name].SWAKVPool for name in reversed(_POOLS) if hasattr(modules.get(name), "SWAKVPool"))
    pool = object.__new__(kind)
    pool.__dict__.update(
        full_kv_pool=full, swa_kv_pool=sliding, layers_mapping={FULL: (0, False), SLIDING: (0, True)}, swa_loc=None,
        full_to_swa_index_mapping=mapping, layer_transfer_counter=None, start_layer=0, page_size=1, swa_layer_nums=1,
    )  # fmt: skip
    return pool


def translator(modules: dict[str, Any], batch: Any, pool: Pool) -> Any:
    """What the newest releases read the page table through, and plan the slots of a batch with."""
    made = modules[TRANSLATOR].KVIndexTranslator(
        req_to_token=pool.req_to_token, token_to_kv_pool_allocator=pool.allocator, token_to_kv_pool=pool.kv, page_size=1,
        device=device(),
    )  # fmt: skip
    if hasattr(made, "own_plan"):
        batch.kv_loc_plan = made.own_plan(batch)
    return made


def layer(layer_id: int, window: int) -> Any:
    """A `RadixAttention`, as far as attention backends ask it."""
    return SimpleNamespace(
        tp_q_head_num=HEADS, tp_k_head_num=HEADS, tp_v_head_num=HEADS, head_dim=DIM, qk_head_dim=DIM, v_head_dim=DIM,
        scaling=DIM**-0.5, layer_id=layer_id, logit_cap=0.0, logit_capping_method="tanh", is_cross_attention=False,
        attn_type=None, sliding_window_size=window if layer_id == SLIDING else -1, xai_temperature_len=-1, k_scale=None,
        v_scale=None,
    )  # fmt: skip
