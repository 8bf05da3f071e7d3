"""Proof of sglang.fa3-tree-sinks: trees of drafts of a model with attention sinks, drafted and verified.

Real: construction of `FlashAttentionBackend` and `FlashAttentionMultiStepBackend`, their metadata with and without a CUDA
graph, and their forward. FlashAttention 3 and the merge of two passes are emulated; the Triton kernel that lists what window
layers see runs in the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import Observation, replaced
from attnfix.patches.lab.sglang.draft_trees import PAGE, Server, Trees
from attnfix.patches.lab.sglang.flash_attention import BACKEND


class Proof(Trees):
    def scenario(self, seed: int) -> Iterator[Observation]:
        for size in self._sizes:
            server = Server(self.engine, seed, size, sinks=True)
            for graph in (False, True):
                yield server.verify(graph)
                yield from server.draft(graph)

    def control(self, seed: int) -> Iterator[Observation]:
        """Trees without sinks, chains with them, a server that drafts nothing, and layers with a window, in one pass."""
        for size in self._sizes:
            for server in Server(self.engine, seed, size), Server(self.engine, seed, size, topk=1, sinks=True):
                for graph in (False, True):
                    yield server.verify(graph)
                    yield from server.draft(graph)
            plain = Server(self.engine, seed, size, topk=0, sinks=True)
            yield plain.decode()
            yield plain.prefill()
        if hasattr(self.engine[BACKEND].FlashAttentionBackend, "_init_sliding_window_attn_spec_metadata"):
            windows = Server(self.engine, seed, sinks=True, swa=True)
            for graph in (False, True):
                yield windows.verify(graph)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Pages of several tokens have code for trees from 0.5.7 on, and servers take them from 0.5.13 on."""
        return (1, PAGE) if hasattr(self.engine[BACKEND], "draft_decode_set_expand_metadata") else (1,)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ways = {
            "the correction does nothing": lambda launch, drafts: False,
            "sinks are in no pass": lambda launch, drafts: "sinks" in launch,
        }
        if PAGE in self._sizes:  # where the first pass may have no key: else it is as right as the second
            ways["sinks are in the first pass"] = lambda launch, drafts: "sinks" in launch and launch["page_table"] is drafts
        return {name: replaced(wrap, "is_first_pass", way) for name, way in ways.items()}
