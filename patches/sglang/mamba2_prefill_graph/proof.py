"""Proof of sglang.mamba2-prefill-graph: prompts that are prefilled by replays of a graph which was captured with others.

What is real and what is played: `attnfix.patches.lab.sglang.mamba2`. The engine captures, breaks and replays.
Emulated: a segment, which repeats the layer with the metadata of capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.sglang.engine import accepted
from attnfix.patches.lab.sglang.mamba2 import CHUNK, Mamba2Layer, Request, Server

from .wrap import BREAKS, CONTEXT

RUNNER = "sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend"
#: Tokens that the graph was captured with
_ROOM = 4 * CHUNK


class Shape(NamedTuple):
    """The engine's key of a graph."""

    size: int


_GROUP, _SHAPE = SimpleNamespace(barrier=lambda: None), Shape(_ROOM)


class Segment:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self, **_: Any) -> None:
        self.graph = Graph()

    def capture_begin(self, **_: Any) -> None: ...

    def capture_end(self) -> None: ...

    def instantiate(self) -> None: ...

    def replay(self) -> None:
        self.graph.replay()


class Graphed(Server):
    """A server whose prompts run in a prefill graph in which the layer is called by itself: as Falcon-H1's, which gives it room
    for its output, or as NemotronH's, which does not (`gives`)."""

    def __init__(self, proof: Proof, seed: int, gives: bool = True):
        import torch

        super().__init__(proof, seed)
        self.gives = gives
        self.context = proof.engine[CONTEXT]
        self.static, self.out = torch.zeros(_ROOM, 32), torch.zeros(_ROOM, 32)
        self.graphs = proof.graphs(self.backend)
        self.capturing = True
        self.prefill({self.fresh(CHUNK): CHUNK for _ in range(_ROOM // CHUNK)})
        self.capturing = False

    def forward(self, tokens: Any, batch: Any) -> Any:
        self.static.zero_()
        self.static[: len(tokens)] = tokens
        with self._of(batch):
            self._capture(batch) if self.capturing else self.graphs.replay(_SHAPE, batch)
        return self.out[: len(tokens)].clone()

    def _capture(self, batch: Any) -> None:
        metadata = self.backend.forward_metadata

        def layer(tokens: Any) -> Any:
            given = {"output": self.out if self.gives else None, "layer_id": 0, "forward_batch": batch}
            how = {"hidden_states": tokens, "use_triton_causal_conv": True, **accepted(self.backend.forward, given)}
            with replaced(self.backend, "forward_metadata", metadata):
                returned = self.backend.forward(mixer=self.mixer, **how)
            return self.out if self.gives else returned

        def run() -> Any:
            self.out = layer(self.static)
            return self.out

        self.graphs.capture_one(_SHAPE, run)
        graph = self.graphs._graphs[_SHAPE]
        if not graph._break_fns:
            self.out = graph._segments[0].graph.recorded(layer)(self.static)

    @contextmanager
    def _of(self, batch: Any) -> Iterator[None]:
        with self.context.set_tc_piecewise_forward_context(batch, [None], None, [], []):
            yield


class Proof(Mamba2Layer):
    modules = (*Mamba2Layer.modules, BREAKS, CONTEXT, RUNNER)
    may_lack = (*Mamba2Layer.may_lack, BREAKS, CONTEXT, RUNNER)

    def prepare(self) -> None:
        import torch

        if BREAKS not in self.engine or not hasattr(self.engine[BREAKS], "BreakableCUDAGraphCapture"):
            raise NoSuchPath("prompts run in no breakable graph")
        super().prepare()
        vars(self.engine[RUNNER])["get_parallel"] = lambda: SimpleNamespace(tp_group=_GROUP)  # from 0.5.20 on
        self.engine[BREAKS]._weak_ref_if_tensor = lambda value: value  # a kernel of sgl_kernel's
        torch.cuda.CUDAGraph = Segment  # type: ignore[assignment,misc]
        torch.cuda.current_stream = torch.cpu.current_stream  # type: ignore[assignment]

    def graphs(self, backend: Any) -> Any:
        """The engine's prefill graphs of a server with that Mamba2 backend."""
        model_runner = SimpleNamespace(attn_backend=SimpleNamespace(linear_attn_backend=backend), tp_group=_GROUP)
        runner = SimpleNamespace(
            model_runner=model_runner, device_module=SimpleNamespace(synchronize=lambda: None),
            cuda_graph_output_rows=lambda out: None, cuda_graph_output_capacity_rows=lambda out: None,
        )  # fmt: skip
        return self.engine[RUNNER].BreakableCudaGraphBackend(runner)

    def scenario(self, seed: int) -> Iterator[Observation]:
        """A full graph of other prompts, some that leave room, and one whose first tokens are cached."""
        for gives in (True, False):
            yield from self._prompts(Graphed(self, seed, gives))

    def _prompts(self, server: Graphed) -> Iterator[Observation]:
        first = server.fresh(CHUNK + 3)
        yield server.prefill({first: CHUNK + 3, server.fresh(_ROOM - CHUNK - 3): _ROOM - CHUNK - 3})
        yield server.prefill({server.fresh(7): 7, server.fresh(9): 9})
        later = server.behind(first, CHUNK)
        yield server.prefill({later: CHUNK})
        yield from map(server.cached, (first, later))

    def control(self, seed: int) -> Observation:
        """The same prompts without a graph, a decode, and a graph of a server without Mamba2 layers."""
        import torch

        server = Server(self, seed)
        first = server.fresh(CHUNK)
        seen = [server.prefill({first: CHUNK})]
        later: Request = server.behind(first, CHUNK)
        seen += [server.prefill({later: CHUNK}), server.cached(first), server.decode([later])]
        graphs, out = self.graphs(None), torch.ones(_ROOM, 1)
        graphs.capture_one(_SHAPE, lambda: out)
        seen.append(observe(graphs.replay(_SHAPE, None), out.double()))
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the last tokens of the graph": replaced(wrap, "of_the_batch", lambda rows, tokens: rows[-tokens:]),
            "nobody gets the output": replaced(wrap, "of_the_batch", lambda rows, tokens: rows[:tokens].clone()),
        }
