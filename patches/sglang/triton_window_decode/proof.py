"""Proof of sglang.triton-window-decode: decode steps of a Gemma 2 beyond its window, eager and replayed, layer by layer.

Real: `ServerArgs` and `ModelConfig` of the model, its window as `models/gemma2.py` hands it on, `RadixAttention`, the pools and
allocators, `ForwardBatch`, `TritonAttnBackend` with its own `__init__`, its layouts of a batch, and its Triton kernels, in the
interpreter. Played: the graph runner, which calls the backend at capture and replay, and the scheduler, which frees KV behind
the window from a window pool as early as any release does. A replay attends again with the metadata of capture.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.gpu_memory import GpuMemory
from attnfix.patches.lab.proof import Observation, combine, cumulative, device, observe, replaced
from attnfix.patches.lab.sglang import absent, construction  # noqa: F401  its stand-ins for imports are wanted here
from attnfix.patches.lab.sglang.engine import module, on_cpu

_BACKEND = "sglang.srt.layers.attention.triton_backend"

WINDOW = 8  # tokens that a token sees, itself with them, by the checkpoint
_HEADS, _DIM, _CAP = 2, 32, 50.0
_FULL, _SLIDING = 0, 1  # layers, as `construction` has their pools
_ROOM, _CONTEXT = 4, 40  # requests; tokens of each
_SIZES = (2, 3)  # of the decode graphs
#: Cached tokens of each request. Steps of the first three come up to the window, pass it, and are far behind it
_LONG, _ONE, _SHORT = [WINDOW - 2, 30, WINDOW], [WINDOW + 1], [1, WINDOW - 3]
_STEPS = 2
#: The interpreter's time goes by the splits
_FLAGS = "--attention-backend", "triton", "--triton-attention-num-kv-splits", "2"

_GEMMA2 = {
    "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": _HEADS, "num_key_value_heads": 1, "head_dim": _DIM, "num_hidden_layers": 2, "vocab_size": 64,
    "max_position_embeddings": _CONTEXT, "torch_dtype": "float16", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "sliding_window": WINDOW,
    "query_pre_attn_scalar": _DIM, "attn_logit_softcapping": _CAP, "final_logit_softcapping": 30.0, "attention_bias": False,
}  # fmt: skip


class Server:
    """The window layer and the full one of a server, and the KV of its requests.

    `window`: what the runner has; with `pool` the window layer's KV has a pool of its own.
    """

    tokens = 1  # of each request, in a step that is captured

    def __init__(self, served: Any, seed: int, window: int, pool: bool):
        import torch

        self.draw, self.pool = torch.Generator().manual_seed(seed), pool
        self.runner = type(served)(
            served.server_args, served.model_config, requests=_ROOM, tokens=_ROOM * _CONTEXT, draft=False, window=pool,
            device=served.device,
        )  # fmt: skip
        kind = module("layers.radix_attention").RadixAttention
        self.layers = torch.nn.ModuleList(
            kind(_HEADS, _DIM, _DIM**-0.5, 1, layer_id, logit_cap=_CAP, sliding_window_size=size)
            for layer_id, size in ((_FULL, -1), (_SLIDING, window))
        )
        self.runner.model, self.runner.sliding_window_size = self.layers, window
        self.backend = self.runner.backend("triton_backend:TritonAttnBackend")
        for row in range(_ROOM):
            self.runner.request(_CONTEXT - 4, row)
        self.text = [[self._rows(_ROOM, _CONTEXT) for _ in "kv"] for _ in self.layers]
        self.graphs: dict[int, Any] = {}
        self.memory: Any = None

    def _rows(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, 1, _DIM, generator=self.draw).half().to(device())

    def _slots(self, row: int, tokens: range) -> Any:
        return self.runner.req_to_token_pool.req_to_token[row, list(tokens)].long()

    def fill(self, row: int, tokens: range) -> None:
        """Put the keys and values of tokens where the engine has them."""
        kv = self.runner.token_to_kv_pool
        for layer_id, texts in enumerate(self.text):
            at = self._slots(row, tokens)
            if self.pool and layer_id == _SLIDING:
                at = self._translated(at)
            for buffer, text in zip((kv.get_key_buffer(layer_id), kv.get_value_buffer(layer_id)), texts):
                buffer[at] = text[row, list(tokens)]

    def _translated(self, slots: Any) -> Any:
        homes = self.runner.token_to_kv_pool, self.runner.token_to_kv_pool_allocator  # the latter up to 0.5.7
        home = next(one for one in homes if hasattr(one, "translate_loc_from_full_to_swa"))
        return home.translate_loc_from_full_to_swa(slots)

    def free(self, row: int, before: int) -> None:
        """Free the window pool's slots of tokens before this one, as the scheduler does; others write there."""
        slots = self._slots(row, range(before))
        own = self._translated(slots)
        kv, kept = self.runner.token_to_kv_pool, own[own > 0]
        self.runner.token_to_kv_pool_allocator.free_swa(slots[own > 0])
        for buffer in (kv.get_key_buffer(_SLIDING), kv.get_value_buffer(_SLIDING)):
            buffer[kept] = self._rows(len(kept))

    def decode(self, cached: list[int], graph: bool, layers: tuple[int, ...] = (_SLIDING,)) -> Observation:
        """Some steps of requests with so many cached tokens, in the smallest graph that holds them or without."""
        for row, n in enumerate(cached):
            self.fill(row, range(n))
        seen = []
        for step in range(_STEPS):
            at = [n + step for n in cached]
            if self.pool:
                for row, place in enumerate(at):
                    self.free(row, max(0, place + 1 - WINDOW))
            batch = self._graph_batch(at) if graph else self._batch(at)
            if not graph:
                with on_device():
                    self.backend.init_forward_metadata(batch)
            for row, place in enumerate(at):
                self.fill(row, range(place, place + 1))
            seen += [self._attend(layer_id, at, batch) for layer_id in layers]
        return combine(*seen)

    def _attend(self, layer_id: int, at: list[int], batch: Any) -> Observation:
        """The layer's attention of the tokens at these places of the requests' texts, of which the cache holds all."""
        import torch

        q = self._queries(layer_id, at)
        padded = torch.cat([q, q.new_zeros(batch.batch_size - len(at), *q.shape[1:])])
        with on_device():
            out = self.backend.forward_decode(padded.flatten(1), None, None, self.layers[layer_id], batch, save_kv_cache=False)
        places = list(enumerate(at))
        return self._judged(layer_id, places, q, out.view(padded.shape)[: len(at)])

    def _queries(self, layer_id: int, at: list[int]) -> Any:
        """[requests, heads, d]. In the window layer they look for the window's oldest token and for the one before it."""
        import torch

        q = torch.randn(len(at), _HEADS, _DIM, generator=self.draw).half().to(device())
        for row, place in enumerate(at):
            edge = place + 1 - WINDOW
            if layer_id == _SLIDING and edge >= 0:
                keys = self.text[_SLIDING][0][row]
                q[row] = q[row] / 4 + keys[edge] + (keys[edge - 1] if edge else 0)
        return q

    def _judged(self, layer_id: int, places: list[tuple[int, int]], q: Any, out: Any) -> Observation:
        """Tokens at these (row, place), against attention over the checkpoint's window in float64."""
        import torch

        reference = []
        for one, (row, place) in zip(q, places, strict=True):
            first = max(0, place + 1 - WINDOW) if layer_id == _SLIDING else 0
            k, v = (text[row, first : place + 1].expand(-1, _HEADS, -1) for text in self.text[layer_id])
            reference.append(emulators.attention(one[None], k, v, _DIM**-0.5, soft_cap=_CAP)[0])
        return observe(out, torch.cat(reference))

    def _batch(self, at: list[int], size: int | None = None) -> Any:
        """A decode step, with requests of one token behind the others up to `size`."""
        import torch

        padding = (size or len(at)) - len(at)
        tensor = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        lens = [place + 1 for place in at] + [1] * padding
        slots = [self._slots(row, range(place, place + 1)) for row, place in enumerate(at)]
        return self.runner.forward_batch(
            "DECODE", batch_size=len(lens), input_ids=tensor([0] * len(lens)), seq_lens=tensor(lens),
            req_pool_indices=tensor([*range(len(at))] + [_ROOM - 1] * padding), seq_lens_sum=sum(lens),
            seq_lens_cpu=torch.tensor(lens), positions=tensor([n - 1 for n in lens]),
            out_cache_loc=torch.cat([*slots, tensor([0] * padding)]),
        )  # fmt: skip

    def prefill(self, cached: list[int], new: list[int]) -> Observation:
        """Both layers' attention of new tokens behind cached ones."""
        import torch

        for row, n in enumerate(cached):
            self.fill(row, range(n))
        tensor = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        lens = [n + more for n, more in zip(cached, new)]
        spans = [range(n, n + more) for n, more in zip(cached, new)]
        batch = self.runner.forward_batch(
            "EXTEND", batch_size=len(new), input_ids=tensor([0] * sum(new)), seq_lens=tensor(lens),
            req_pool_indices=tensor([*range(len(new))]), seq_lens_sum=sum(lens), seq_lens_cpu=torch.tensor(lens),
            out_cache_loc=torch.cat([self._slots(row, span) for row, span in enumerate(spans)]),
            extend_num_tokens=sum(new), extend_seq_lens=tensor(new, torch.int32), extend_seq_lens_cpu=new,
            extend_prefix_lens=tensor(cached, torch.int32), extend_prefix_lens_cpu=cached,
            extend_start_loc=cumulative(new)[:-1].to(device()),
        )  # fmt: skip
        seen = []
        with on_device():
            self.backend.init_forward_metadata(batch)
            for layer_id, layer in enumerate(self.layers):
                places = [(row, place) for row, span in enumerate(spans) for place in span]
                q = torch.randn(len(places), _HEADS, _DIM, generator=self.draw).half().to(device())
                k, v = (torch.stack([text[place] for place in places]) for text in self.text[layer_id])
                out = self.backend.forward_extend(q.flatten(1), k, v, layer, batch, save_kv_cache=False).view(q.shape)
                seen.append(self._judged(layer_id, places, q, out))
        return combine(*seen)

    # Graphs

    def _graph_batch(self, at: list[int]) -> Any:
        """A step as it is replayed: the batch of capture, with its metadata, of which the buffers are those of this step."""
        if not self.graphs:
            self._capture()
        size = min(size for size in self.graphs if size >= len(at))
        self._lay_out(self._batch(at, size), capture=False)
        batch, self.backend.forward_metadata = self.graphs[size]
        return batch

    def _capture(self) -> None:
        """The buffers of the graphs, and the metadata of each, the largest first."""
        self.memory = GpuMemory(self.draw, others=64, asked=device(), words=(0, 2**20))
        with self.memory.given(), on_device():
            self.backend.init_cuda_graph_state(max(_SIZES), max(_SIZES) * self.tokens)
        for size in sorted(_SIZES, reverse=True):
            self._lay_out(batch := self._batch([], size), capture=True)
            self.graphs[size] = batch, self.backend.forward_metadata

    def _lay_out(self, batch: Any, *, capture: bool) -> None:
        """Through the call that the graph runner of this release makes."""
        backend = self.backend
        with on_device():
            if hasattr(backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
                return backend.init_forward_metadata_out_graph(batch, in_capture=capture)
            what, rest = (batch.req_pool_indices, batch.seq_lens), (None, batch.forward_mode, batch.spec_info)
            if capture:
                tokens = batch.batch_size * self.tokens
                return backend.init_forward_metadata_capture_cuda_graph(batch.batch_size, tokens, *what, *rest)
            return backend.init_forward_metadata_replay_cuda_graph(
                batch.batch_size, *what, batch.seq_lens_sum, *rest, seq_lens_cpu=batch.seq_lens_cpu
            )


def _window(config: Any) -> int:
    """What `models/gemma2.py` hands on as the window; older releases cannot import that file without a GPU's kernels."""
    path = Path(module("layers.radix_attention").__file__).parents[1] / "models" / "gemma2.py"
    name = "get_attention_sliding_window_size"
    own = [part for part in ast.parse(path.read_text()).body if isinstance(part, ast.FunctionDef) and part.name == name]
    size: int = run_excerpt(path, *own)[name](config)
    return size


def on_device() -> Any:
    """On a CPU the engine's "cuda" is one."""
    return on_cpu() if device() == "cpu" else nullcontext()


class Proof(proof.Proof):
    modules = (_BACKEND,)
    kernel = "interpreted"

    def prepare(self) -> None:
        self.served = construction.serve(*_FLAGS, config=_GEMMA2, draft=False, device=device())
        self.window = _window(self.served.model_config.hf_config)

    def scenario(self, seed: int) -> Observation:
        ways = (_LONG, False, False), (_LONG, False, True), (_LONG, True, False), (_ONE, True, True)
        return combine(*(self._decoded(seed, *way) for way in ways))

    def control(self, seed: int) -> Observation:
        """Requests within the window, new tokens beyond it, and a model that hands its whole window on."""
        server, whole = Server(self.served, seed, self.window, False), Server(self.served, seed, WINDOW, False)
        short = server.decode(_SHORT, False, (_FULL, _SLIDING)), server.decode(_SHORT, True)
        long = whole.decode(_LONG, False), whole.decode(_ONE, True)
        return combine(*short, *long, server.prefill([WINDOW + 3, 0], [2, WINDOW + 3]))

    def _decoded(self, seed: int, cached: list[int], pool: bool, graph: bool) -> Observation:
        server = Server(self.served, seed, self.window, pool)
        seen = server.decode(cached, graph)
        intact = server.memory is None or server.memory.intact()
        return seen if intact else Observation(math.inf, seen.bits)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real, graphs = wrap.with_the_token, {"init_forward_metadata_out_graph", "init_forward_metadata_replay_cuda_graph"}

        def without(*left: str) -> Any:
            """The engine's functions of these names see the window as it is."""
            way = lambda call, backend: call() if call.target.function.__name__ in left else real(call, backend)  # noqa: E731
            return replaced(wrap, "with_the_token", way)

        @contextmanager
        def overflowing() -> Iterator[None]:
            with without("init_cuda_graph_state"), replaced(wrap, "holds", lambda *_: True):
                yield

        def for_good(call: Any, backend: Any) -> Any:
            backend.sliding_window_size = wrap.window_of_decode(backend)
            return call()

        return {
            "the correction does nothing": replaced(wrap, "window_of_decode", lambda backend: backend.sliding_window_size),
            "the window is too long": replaced(wrap, "window_of_decode", lambda backend: backend.sliding_window_size + 2),
            "the window stays longer": replaced(wrap, "with_the_token", for_good),
            "in graphs alone": without("init_forward_metadata"),
            "without graphs alone": without(*graphs),
            "the graphs' buffer stays as it is": without("init_cuda_graph_state"),
            "the graphs' buffer overflows": overflowing(),
        }
