"""What sglang's prefill graph does to inputs of its breaks, of which it keeps the address alone: decision 0034 rests on it.

Layers of attention run as in that graph, in three sizes on one pool of memory. Each replay must give what the layers give
without a graph. Before it, all memory that has no owner is filled with NaN. Needs sglang from 0.5.15 on.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

_UTILS = "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph"
HIDDEN, LAYERS, SIZES = 512, 6, (2048, 512, 64)
#: Where the input of a break comes from, and whether it is right at a replay
INPUTS = {
    "the segment before": True, "an earlier segment": True, "an earlier break": True, "outside the graph": False,
    "another stream reads it": False,
}  # fmt: skip


@pytest.fixture
def breaks() -> Any:
    return pytest.importorskip(_UTILS)


def without_owner() -> None:
    """Fill memory that torch holds and no tensor has."""
    from cuda.bindings import runtime

    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                runtime.cudaMemset(block["address"], 0xFF, block["size"])
    torch.cuda.synchronize()


class Layers:
    def __init__(self, breaks: Any, source: str) -> None:
        draw, self.source = torch.Generator("cuda").manual_seed(0), source

        def normal(*shape: int) -> torch.Tensor:
            return (torch.randn(*shape, generator=draw, device="cuda") * HIDDEN**-0.5).bfloat16()

        self.qkv = [normal(3 * HIDDEN, HIDDEN) for _ in range(LAYERS)]
        self.out = [normal(HIDDEN, HIDDEN) for _ in range(LAYERS)]
        self.tokens, self.read = normal(SIZES[0], HIDDEN) * HIDDEN**0.5, normal(SIZES[0], HIDDEN)
        self.stream, self.outside = torch.cuda.Stream(), torch.empty(0)
        self.captures, self.held = False, list[torch.Tensor]()
        self.attend, self.double, self.join, self.copy = (
            breaks.eager_on_graph(True)(one) for one in (self._attend, self._double, self._join, self._copy)
        )

    def _attend(self, q: Any, k: Any, v: Any, out: Any, more: Any) -> None:
        heads = [one.reshape(1, -1, 8, HIDDEN // 8).transpose(1, 2) for one in (q, k, v)]
        result = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        out.copy_(result.transpose(1, 2).reshape(out.shape) + (0 if more is None else more))

    def _double(self, hidden: Any) -> Any:
        return hidden * 2

    def _copy(self, source: Any, to: Any) -> None:
        """The other stream reads long after the break has returned."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(3_000_000)
            to.copy_(source)

    def _join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)

    def __call__(self, tokens: int) -> torch.Tensor:
        hidden, kept = self.tokens[:tokens], None
        for at in range(LAYERS):
            q, k, v = (hidden @ self.qkv[at].t()).split(HIDDEN, -1)
            if at == 0 and self.source == "an earlier segment":
                kept = hidden @ self.out[0]
            if at == 0 and self.source == "an earlier break":
                kept = self.double(hidden)
            if at == 1 and self.source == "another stream reads it":
                self.copy(read := hidden * 3, self.read[:tokens])
                self.held += [] if self.captures else [read]
                del read
            if at == 2 and self.source == "another stream reads it":
                self.join()
                hidden = hidden + self.read[:tokens]
            more = self.outside if self.source == "outside the graph" else kept if at == 3 else None
            kept = None if at == 3 else kept
            self.attend(q, k, v, out := torch.empty_like(q), more)
            del q, k, v, more
            hidden = hidden + out @ self.out[at]
        return hidden


@pytest.mark.parametrize("keeps", (False, True), ids=("address alone", "tensor"))
@pytest.mark.parametrize("source", INPUTS)
def test_an_input_of_a_break(breaks: Any, source: str, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if keeps:
        monkeypatch.setattr(breaks, "_weak_ref_if_tensor", lambda one: one)
    layers, graphs = Layers(breaks, source), {}
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    for tokens in SIZES:
        layers.outside = torch.ones(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        layers.captures = False
        right = layers(tokens)
        torch.cuda.synchronize()
        layers.held.clear()
        layers.captures, graph, out = True, breaks.BreakableCUDAGraph(), torch.empty_like(right)
        with breaks.BreakableCUDAGraphCapture(graph, pool=pool, stream=stream):
            out.copy_(layers(tokens))
        graphs[tokens] = SimpleNamespace(replay=graph.replay, out=out, right=right)
    layers.outside = torch.empty(0)
    same = []
    for tokens in (*SIZES, *reversed(SIZES)):
        without_owner()
        graphs[tokens].replay()
        torch.cuda.synchronize()
        same.append(torch.equal(graphs[tokens].out, graphs[tokens].right))
    assert all(same) == (INPUTS[source] or keeps)
