"""sglang's CUDA graph runners, captured and replayed without a GPU.

What a graph holds runs again at replay; attention launches again what it launched at capture, with the very same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.cuda_graph import Graph

from .engine import module, on_cpu


class DraftModel:
    """A draft model of one attention layer, whose queries, keys and values the caller puts into `q`, `k` and `v` (MLA: `q`).

    `record(graph)` is a context in which the backend's kernel is `graph.recorded(kernel)`. Its output of a replay is in `out`.
    """

    def __init__(self, runner: Any, backend: Any, record: Callable[[Graph], Any], rows: int):
        import torch

        config = runner.model_config
        heads, dim, shared, v_dim = config.num_attention_heads, config.head_dim, config.get_num_kv_heads(1), config.head_dim
        if runner.use_mla_backend:  # queries absorbed; keys and values are in the cache
            dim, shared, v_dim = config.kv_lora_rank + config.qk_rope_head_dim, 1, config.kv_lora_rank
        attention = module("layers.radix_attention").RadixAttention
        self.layer = attention(heads, dim, dim**-0.5, num_kv_heads=shared, layer_id=0, v_head_dim=v_dim)
        self.backend, self.record, self.vocabulary, self.hidden = backend, record, config.vocab_size, config.hidden_size
        self.q = torch.zeros(rows, heads * dim, dtype=runner.dtype)
        self.k = self.v = None
        if not runner.use_mla_backend:
            self.k, self.v = (torch.zeros(rows, shared, dim, dtype=runner.dtype) for _ in "kv")
        self._graphs: dict[int, tuple[Graph, Any]] = {}
        self.replaying, self.out = False, None

    def forward(self, input_ids: Any, positions: Any, batch: Any) -> Any:
        import torch

        tokens, size = len(input_ids), batch.batch_size
        if self.replaying:
            graph, self.out = self._graphs[size]
            graph.replay()
        else:
            graph = Graph()
            q, k, v = (None if rows is None else rows[:tokens] for rows in (self.q, self.k, self.v))
            with self.record(graph):
                self.out = self.backend.forward_extend(q, k, v, self.layer, batch, save_kv_cache=False)
            self._graphs[size] = graph, self.out
        output = module("layers.logits_processor").LogitsProcessorOutput
        return output(next_token_logits=torch.zeros(tokens, self.vocabulary), hidden_states=torch.zeros(tokens, self.hidden))


class _RunAgain:
    """In the place of `torch.cuda.CUDAGraph`: what ran at capture, run again; attention replays what it launched then."""

    run: Callable[[], Any]

    def pool(self) -> None:
        return None


@contextmanager
def captured(kind: Any, file: Any) -> Iterator[None]:
    """Give a graph runner's class the seams of a machine without CUDA graphs, and let it be constructed."""

    def capture_graph(self: Any, graph: _RunAgain, pool: Any, stream: Any, run_once: Callable[[], Any]) -> Any:
        graph.run = run_once
        return run_once()

    def replay(self: Any, forward_batch: Any) -> None:
        model = self.model_runner.model
        model.replaying = True
        try:
            self.graphs[self.bs].run()
        finally:
            model.replaying = False

    kind._create_graph = lambda self: _RunAgain()
    kind._capture_init = lambda self, run_once: None
    kind._capture_graph, kind._replay = capture_graph, replay
    graphs = module("model_executor.cuda_graph_runner")
    former = graphs.graph_capture, graphs.get_available_gpu_memory
    graphs.graph_capture = contextmanager(lambda *_, **__: iter([SimpleNamespace(stream=None)]))
    graphs.get_available_gpu_memory = file.get_available_gpu_memory = lambda *_, **__: 0.0
    try:
        with on_cpu():
            yield
    finally:
        graphs.graph_capture, graphs.get_available_gpu_memory = former


def multi_layer_step(graphs: Any, batch: Any, accepted_tokens: list[int]) -> None:
    """Replay the draft extend of every layer, as `MultiLayerEagleDraftWorker` does after a verification."""
    import torch

    graphs.reset_buffers(batch, SimpleNamespace(accept_lens=torch.tensor(accepted_tokens, dtype=torch.int32)))
    for step in range(graphs.speculative_num_steps):
        graphs.get_runner(step).replay(batch, init_state=step == 0)
