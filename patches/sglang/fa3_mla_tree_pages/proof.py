"""Proof of sglang.fa3-mla-tree-pages: trees of drafts over latents in pages of several tokens, verified.

Real: construction of `FlashAttentionBackend` and `FlashAttentionMultiStepBackend`, their metadata with and without a CUDA
graph, and their forward. FlashAttention 3 and the merge of two passes are emulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, replaced
from attnfix.patches.lab.sglang.draft_trees import PAGE, Server, Trees
from attnfix.patches.lab.sglang.flash_attention import BACKEND

#: What plans drafts in pages of several tokens: in 0.5.6, and in later releases
_PLANS = "update_draft_decode_set_expand_metadata_with_page_size", "draft_decode_set_expand_metadata"


class Proof(Trees):
    def prepare(self) -> None:
        if not any(hasattr(self.engine[BACKEND], name) for name in _PLANS):
            raise NoSuchPath("trees in pages of several tokens: the backend has no code for them, and servers refuse them")
        super().prepare()

    def scenario(self, seed: int) -> Iterator[Observation]:
        for size in (PAGE, 4):
            server = Server(self.engine, seed, size, latent=True)
            for graph in (False, True):
                yield server.verify(graph)

    def control(self, seed: int) -> Iterator[Observation]:
        """Chains, pages of one token, drafts of trees, whose table is one of pages, and a server that drafts nothing."""
        for size, topk in ((PAGE, 1), (1, 2), (1, 1)):
            server = Server(self.engine, seed, size, topk, latent=True)
            for graph in (False, True):
                yield server.verify(graph)
        for size in (PAGE, 1):
            plain = Server(self.engine, seed, size, topk=0, latent=True)
            yield plain.decode()
            yield plain.prefill()
            for graph in (False, True):
                yield from Server(self.engine, seed, size, latent=True).draft(graph)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        slots = wrap.slots
        return {
            "the correction does nothing": replaced(wrap, "is_second_pass", lambda launch, drafts: False),
            "the pass over what is cached is shown slots, too": replaced(wrap, "is_second_pass", lambda launch, drafts: True),
            "only one part of the latents is shown by slots": replaced(
                wrap, "slots", lambda cache: slots(cache) if cache.storage_offset() else cache
            ),
            "a slot is as wide as the part": replaced(
                wrap, "slots", lambda cache: slots(cache).as_strided(slots(cache).shape, slots(cache).contiguous().stride())
            ),
        }
