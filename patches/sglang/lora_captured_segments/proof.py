"""Proof of sglang.lora-captured-segments: decode steps and verification in CUDA graphs, of requests with several adapters.

Real: `ServerArgs`, `ChunkedSgmvLoRABackend` with its buffers for graphs, what it lays out at capture and before each replay,
and its kernels of projections and of embeddings, in the interpreter. Played: the pool, which says which slot an adapter has,
and the graph, which launches again what capture launched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.proof import Cases, Observation, combine, device, observe, replaced
from attnfix.patches.lab.sglang import absent, construction  # noqa: F401  absent: its stand-ins for imports are wanted here
from attnfix.patches.lab.sglang.engine import accepted, on_cpu
from attnfix.patches.lab.sglang.tracked_states import unpinned

from . import wrap

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_BACKEND = "sglang.srt.lora.backend.chunked_backend"
_MANAGER = "sglang.srt.lora.lora_manager"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_WIDTH, _OUT, _RANK, _WORDS = 32, 16, 16, 24
_RANKS = {None: 0, 1: _RANK, 2: _RANK // 2, 3: _RANK}
_SCALINGS = {None: 0.0, 1: 0.5, 2: 2.0, 3: 1.0}
_KERNELS = {
    "chunked_sgmv_lora_shrink_forward": "_chunked_lora_shrink_kernel",
    "chunked_sgmv_lora_expand_forward": "_chunked_lora_expand_kernel",
    "chunked_embedding_lora_a_forward": "_chunked_embedding_lora_a_kernel",
}


class Case(NamedTuple):
    """`batches`: of each, the adapters of its requests, None the model alone. `size`: requests of the graph. `slots` of
    adapters; `chunk`: the largest; `drafts`: tokens of each request that are verified, 0: it decodes one. Without a graph, a
    batch is a prefill."""

    batches: tuple[tuple[int | None, ...], ...]
    size: int
    slots: int = 4
    chunk: int = 16
    drafts: int = 0
    graph: bool = True
    where: str = ""


class _Recorded:
    def __init__(self, graph: Graph, kernel: Any):
        self.graph, self.kernel = graph, kernel

    def __getitem__(self, grid: Any) -> Any:
        return self.graph.recorded(self.kernel[grid])


class Server:
    """One layer's projection and the embedding, as adapters see them."""

    def __init__(self, proof: Proof, case: Case, seed: int):
        import torch

        self.proof, self.case, self.draw = proof, case, torch.Generator().manual_seed(seed)
        self.each = case.drafts or 1
        tensor = lambda *shape: torch.randn(shape, generator=self.draw).half().to(device()) / 4  # noqa: E731
        self.down = {one: tensor(3 * rank, _WIDTH) for one, rank in _RANKS.items()}
        self.up = {one: tensor(3 * _OUT, rank) for one, rank in _RANKS.items()}
        self.words = {one: tensor(rank, _WORDS) for one, rank in _RANKS.items()}
        rows = max(case.size, *map(len, case.batches)) * self.each
        self.x, self.base = tensor(rows, _WIDTH), tensor(rows, 3 * _OUT)
        self.ids = torch.zeros(rows, dtype=torch.int64, device=device())
        self.downs, self.ups, self.table = tensor(case.slots, 3 * _RANK, _WIDTH), tensor(case.slots, 3 * _OUT, _RANK), None
        if hasattr(proof.engine[_BACKEND], "chunked_embedding_lora_a_forward"):
            self.table = tensor(case.slots, _RANK, _WORDS)
        self.held: dict[int | None, int] = {}  # adapter -> slot
        kind, self.buffers = proof.engine[_BACKEND].ChunkedSgmvLoRABackend, dict[str, Any]()
        self.backend = kind(case.slots, torch.device(device()), proof.launched(case))
        self._make_room()
        if case.graph:
            self._capture()

    def _make_room(self) -> None:
        """The buffers of graphs, as the runner of graphs asks for them."""
        backend, most = self.backend, self.case.size
        names = ("init_decode_cuda_graph_batch_info", "init_cuda_graph_batch_info")  # of 0.5.23, before
        begin = next(getattr(backend, name) for name in names if hasattr(backend, name))
        if not accepted(begin, {"cuda_graph_batch_info": None}):
            begin(most, self.each)
            return
        manager = object.__new__(self.proof.engine[_MANAGER].LoRAManager)  # up to 0.5.5.post2
        manager.__dict__.update(lora_backend=backend, max_loras_per_batch=self.case.slots)
        manager.init_cuda_graph_batch_info(most)
        self.buffers = {"batch_info": manager.cuda_graph_batch_info}

    def _capture(self) -> None:
        self.graph = Graph()
        self.prepare((None,) * self.case.size)
        with ExitStack() as stack:
            for function, kernel in _KERNELS.items():
                if forward := getattr(self.proof.engine[_BACKEND], function, None):
                    home = sys.modules[forward.__module__]
                    stack.enter_context(replaced(home, kernel, _Recorded(self.graph, getattr(home, kernel))))
            stack.enter_context(self.graph.recording())
            self.out = self.forward(self.case.size * self.each)

    def __call__(self, adapters: tuple[int | None, ...]) -> Observation:
        import torch

        rows = len(adapters) * self.each
        self.x.copy_(torch.randn(self.x.shape, generator=self.draw))
        self.base.copy_(torch.randn(self.base.shape, generator=self.draw))
        self.ids.copy_(torch.randint(_WORDS, self.ids.shape, generator=self.draw))
        self.prepare(adapters)
        if self.case.graph:
            self.graph.replay()
        else:
            self.out = self.forward(rows)
        return observe(self.out[:rows].cpu(), self.reference(adapters))

    def forward(self, tokens: int) -> Any:
        import torch

        offsets = torch.arange(4, device=device()) * _OUT
        out = self.backend.run_qkv_lora(
            self.x[:tokens], self.downs, self.ups, offsets, _OUT, base_output=self.base[:tokens].clone()
        )
        if self.table is None:
            return out
        return torch.cat([out, self.backend.run_lora_a_embedding(self.ids[:tokens], self.table, _WORDS)], -1)

    def reference(self, adapters: tuple[int | None, ...]) -> Any:
        import torch

        rows = []
        for row, one in enumerate(adapter for adapter in adapters for _ in range(self.each)):
            rank = _RANKS[one]
            inner = (self.down[one].double() @ self.x[row].double()).view(3, rank)
            added = torch.cat([up.double() @ part for up, part in zip(self.up[one].split(_OUT), inner)])
            out = self.base[row].double() + _SCALINGS[one] * added
            if self.table is not None:
                word = self.words[one][:, self.ids[row]].double()
                out = torch.cat([out, torch.nn.functional.pad(word, (0, _RANK - rank))])
            rows.append(out)
        return torch.stack(rows).cpu()

    def prepare(self, adapters: tuple[int | None, ...]) -> None:
        """Load adapters that have no slot, and lay the batch out."""
        for one in dict.fromkeys(adapters):
            if one not in self.held:
                self._load(one, adapters)
        ranks, scalings = [0] * self.case.slots, [0.0] * self.case.slots
        for one in set(adapters):
            ranks[self.held[one]], scalings[self.held[one]] = _RANKS[one], _SCALINGS[one]
        graph = self.case.graph
        given = {
            "forward_batch": self._batch(adapters), "weight_indices": [self.held[one] for one in adapters],
            "lora_ranks": ranks, "scalings": scalings, "use_cuda_graph": graph, **(self.buffers if graph else {}),
        }  # fmt: skip
        prepare = self.backend.prepare_lora_batch
        prepare(**accepted(prepare, given))

    def _load(self, one: int | None, wanted: tuple[int | None, ...]) -> None:
        free = [slot for slot in range(self.case.slots) if slot not in self.held.values()]
        if not free:
            out = next(held for held in self.held if held not in wanted)
            free.append(self.held.pop(out))
        slot = self.held[one] = free[0]
        rank = _RANKS[one]
        self.downs[slot, : 3 * rank], self.ups[slot, :, :rank] = self.down[one], self.up[one]
        if self.table is not None:
            self.table[slot, :rank] = self.words[one]

    def _batch(self, adapters: tuple[int | None, ...]) -> Any:
        import torch

        modes, count = self.proof.engine[_BATCH].ForwardMode, len(adapters)
        mode = modes.TARGET_VERIFY if self.case.drafts else modes.DECODE if self.case.graph else modes.EXTEND
        batch = object.__new__(self.proof.engine[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=mode, batch_size=count, input_ids=self.ids[: count * self.each], return_logprob=False,
            extend_num_tokens=count * self.each, extend_seq_lens=torch.full((count,), self.each, dtype=torch.int32),
            extend_seq_lens_cpu=[self.each] * count, lora_ids=list(adapters),
            spec_info=type("Drafts", (), {"draft_token_num": self.each}),
        )  # fmt: skip
        return batch


@contextmanager
def _one_device() -> Iterator[None]:
    with ExitStack() as stack:
        if device() == "cpu":
            stack.enter_context(on_cpu())
            stack.enter_context(unpinned())
        yield


def _one_short(real: Any, *args: Any) -> int:
    return int(real(*args)) - 1


def _chunks_of_capture(real: Any, requests: int, each: int, slots: int, chunk: int) -> int:
    return int(real(requests, each, slots, 2 * chunk if requests >= 64 else chunk))


def _bounds_stay(real: Any, info: Any, segments: int, tokens: int, slot: int) -> None:
    info.weight_indices[segments:].fill_(slot)


def _first_slot(real: Any, ranks: list[int]) -> int:
    return max(range(len(ranks)), key=ranks.__getitem__)


_VERIFIES = f"{_BACKEND}:ChunkedSgmvLoRABackend.prepare_lora_batch: use_cuda_graph"  # from 0.5.5.post3


class Proof(Cases):
    modules = (_QUANTIZATION, _BACKEND, _MANAGER, _BATCH)
    kernel = "interpreted"
    may_lack = (_BACKEND,)
    needs, absent = f"{_BACKEND}:ChunkedSgmvLoRABackend", "there is no chunked backend of adapters"
    bug = (
        Case(((1, 2, 1), (2, None, 1), (3, 3, None, 2)), size=4),
        Case(((1, 2), (2, 1)), size=2, slots=2),
        Case(((1,) * 17 + (2,) * 3, (1, 2) * 10), size=20),
        Case(((1, 2) * 20, (1, 1, 1)), size=40, slots=2),  # fewer requests than a graph of the same size, as beside other ranks
        Case(((1,) * 58,), size=64, slots=2, chunk=32),  # its chunks are smaller than those of capture
        Case(((1, 2, 3, None), (1, 2, 2, 2)), size=4, drafts=12, where=_VERIFIES),
        Case(((1,), (2,)), size=1, drafts=36, where=_VERIFIES),
    )
    spared = (
        Case(((1, 1, 1), (2,), (None, None, None)), size=4),
        Case(((1,) * 20,), size=20),
        Case(((2, 1, None), (1, 3)), size=4, graph=False),
    )
    broken = {
        "the correction does nothing": [(wrap.most_segments, lambda real, *args: 1), (wrap.leave_empty, lambda *args: None)],
        "a segment is left out": (wrap.most_segments, _one_short),
        "chunks are as large as those of capture": (wrap.most_segments, _chunks_of_capture),
        "segments of an earlier batch stay": (wrap.leave_empty, lambda real, *args: None),
        "an adapter in use gets tokens that are left over": [
            (wrap.leave_empty, _bounds_stay), (wrap.unused, _first_slot),
        ],
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        for home in [home for name, home in sys.modules.items() if name.endswith(".lora_tuning_config")]:
            vars(home)["get_device_name"] = lambda *_: device()  # no table of launches is of that name

    def launched(self, case: Case) -> Any:
        args = construction.server_args(
            "--enable-lora", "--max-lora-rank", str(_RANK), "--lora-target-modules", "q_proj", "k_proj", "v_proj",
            "--lora-backend", "csgmv", "--max-loras-per-batch", str(case.slots), "--max-lora-chunk-size", str(case.chunk),
        )  # fmt: skip
        construction.publish(args)
        return args

    def run(self, case: Case, seed: int) -> Observation:
        with _one_device():
            server = Server(self, case, seed)
            return combine(*map(server, case.batches))
