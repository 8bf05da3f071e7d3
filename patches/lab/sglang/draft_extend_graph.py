"""The draft-extend CUDA graph of EAGLE speculative decoding, for the proofs of both uniform-replay-stride fixes.

After verification the draft model runs over `STRIDE` tokens of every request in one graph, captured per batch size: `lay_out`
calls the engine's own capture and replay of attention metadata as its graph runner does, `Graph` launches again what was
launched at capture, with the very same arguments. Everything else here is the batch: pool, page table, requests, padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.gate import source_files
from attnfix.compat.gate.digest import find
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.proof import NoSuchPath, Observation, Proof, combine, device, observe, replaced

_WORKER = "sglang.srt.speculative.eagle_worker_v2"
BATCH = "sglang.srt.model_executor.forward_batch_info"
TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
MODULES = (BATCH, TRANSLATOR)
MAY_LACK = (TRANSLATOR,)
STEPS, STRIDE = 3, 4  # draft steps; query tokens of each request in the graph
SIZES = (1, 2, 4, 8)  # captured batch sizes: batches of 3, 5, 6 and 7 requests are padded
ROOM, PAGE, CONTEXT = max(SIZES), 32, 128  # requests, tokens per page, tokens per request
_FILL = 1  # sequence length of a padding row


class Pool:
    """Slots of `ROOM` requests, their pages scattered. Row 0 of the page table belongs to padding rows."""

    def __init__(self, draw: Any):
        import torch

        pages = (ROOM + 1) * CONTEXT // PAGE
        scattered = torch.randperm(pages, generator=draw).view(ROOM + 1, -1, 1) * PAGE
        self.req_to_token = (scattered + torch.arange(PAGE)).view(ROOM + 1, CONTEXT).int().to(device())
        self.slots = pages * PAGE
        self.rows = (torch.randperm(ROOM, generator=draw) + 1).int().to(device())

    def of(self, request: int, start: int, stop: int) -> Any:
        """Slots of a request's tokens from position `start` up to `stop`."""
        return self.req_to_token[self.rows[request], start:stop].long()


@dataclass(frozen=True)
class Requests:
    """`prefix` tokens before this step and `accepted` of its tokens, of each request.

    The step runs over STRIDE tokens of each. Spec v1 instead runs over the accepted ones alone, `packed` one after the other.
    """

    prefix: tuple[int, ...]
    accepted: tuple[int, ...]
    packed: bool = False

    @property
    def size(self) -> int:
        """The captured batch size they run in."""
        return next(size for size in SIZES if size >= len(self.prefix))

    @property
    def new(self) -> tuple[int, ...]:
        return self.accepted if self.packed else (STRIDE,) * len(self.prefix)

    @property
    def rows(self) -> list[slice]:
        """Where the query tokens of each request lie in the graph's input."""
        starts = [sum(self.new[:b]) for b in range(len(self.new))]
        return [slice(start, start + new) for start, new in zip(starts, self.new)]


def uneven(draw: Any, count: int, packed: bool = False) -> Requests:
    """Requests that accept unequally many tokens; the first accepts but one."""
    import torch

    prefix = torch.randint(5, 40, (count,), generator=draw).tolist()
    accepted = torch.randint(1, STRIDE + 1, (count,), generator=draw).tolist()
    return Requests(tuple(prefix), (1, *accepted[1:]), packed)


class Buffers:
    """The graph runner's static inputs, and the forward batches over them."""

    def __init__(self, modules: dict[str, Any], mode: str, pool: Pool):
        import torch

        self.modules, self.pool = modules, pool
        self.mode = getattr(modules[BATCH].ForwardMode, mode)
        self.seq_lens = torch.zeros(ROOM, dtype=torch.int32, device=device())
        self.req_pool_indices = torch.zeros_like(self.seq_lens)
        self.lens = torch.full_like(self.seq_lens, STRIDE)  # query tokens of each request
        self.accepted = torch.full_like(self.seq_lens, STRIDE)

    def fill(self, requests: Requests | None) -> None:
        """Requests in front, padding rows behind them; at capture there are padding rows alone."""
        import torch

        self.seq_lens.fill_(_FILL)
        self.req_pool_indices.zero_()
        self.lens.fill_(STRIDE)
        self.accepted.fill_(STRIDE)
        if requests:
            count, verify = len(requests.prefix), self.mode.is_target_verify()  # which counts its own tokens only afterwards
            totals = [prefix + (0 if verify else new) for prefix, new in zip(requests.prefix, requests.new)]
            self.seq_lens[:count] = torch.tensor(totals)
            self.req_pool_indices[:count] = self.pool.rows[:count]
            self.lens[:count] = torch.tensor(requests.new)
            self.accepted[:count] = torch.tensor(requests.accepted)

    def batch(self, size: int, requests: Requests | None = None) -> Any:
        """The forward batch that the graph of `size` requests is captured or replayed with."""
        import torch

        verify, packed = self.mode.is_target_verify(), requests is not None and requests.packed
        spec = SimpleNamespace(
            accept_length=self.accepted[:size], draft_token_num=STRIDE, num_tokens_per_req=STRIDE, ragged_verify_layout=None,
            # Spec v1 counts here without the token that follows the accepted ones; v2 leaves it unset
            accept_length_cpu=[accepted - 1 for accepted in requests.accepted] if requests and packed else None,
            extend_seq_lens_tensor=self.lens[:size], extend_seq_lens_cpu=self.lens[:size].tolist(),
            custom_mask=self._causal(size) if verify else None,
        )  # fmt: skip
        batch = object.__new__(self.modules[BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=self.mode, batch_size=size, seq_lens=self.seq_lens[:size], spec_info=spec, encoder_lens=None,
            req_pool_indices=self.req_pool_indices[:size], seq_lens_cpu=self.seq_lens[:size].clone().cpu(),
            seq_lens_sum=int(self.seq_lens[:size].sum()), positions=torch.zeros(size * STRIDE, device=device()).long(),
            extend_seq_lens=self.lens[:size], extend_seq_lens_cpu=self.lens[:size].tolist(),
        )  # fmt: skip
        return batch

    def _causal(self, size: int) -> Any:
        """The tree mask of a verification without branches: [STRIDE, keys] of each request, flat."""
        import torch

        lens = self.seq_lens[:size].tolist()
        return torch.cat([torch.ones(STRIDE, n + STRIDE, dtype=torch.bool).tril(n).flatten() for n in lens]).to(device())


class Step:
    """One speculative step of a backend: its graphs are captured when first needed, and replayed with what is asked.

    A subclass has the `backend`, stages a step's inputs, runs `forward` and knows what attention and metadata must be.
    """

    backend: Any

    def __init__(self, modules: dict[str, Any], mode: str, draw: Any):
        self.modules, self.draw, self.pool = modules, draw, Pool(draw)
        self.buffers = Buffers(modules, mode, self.pool)
        self.graphs: dict[int, tuple] = {}

    def __call__(self, requests: Requests) -> tuple[Observation, Observation]:
        """Replay a step; how right its attention is, and its metadata."""
        import torch

        graph, out, captured = self._captured(requests.size)
        self.buffers.fill(requests)
        self.stage(requests)
        lay_out(self.backend, self.buffers.batch(requests.size, requests), self.buffers, capture=False)
        graph.replay()
        reference = self.reference(requests, captured)
        rows = torch.cat([out.view(-1, *reference.shape[1:])[rows] for rows in requests.rows])
        return observe(rows, reference), compared(*self.fields(requests, captured))

    def _captured(self, size: int) -> tuple:
        if size not in self.graphs:
            self.buffers.fill(None)
            graph, batch = Graph(), self.buffers.batch(size)
            lay_out(self.backend, batch, self.buffers, capture=True)
            batch.token_to_kv_pool = self.backend.token_to_kv_pool
            self.graphs[size] = graph, self.forward(graph, batch), self.captured(size)
        return self.graphs[size]

    def stage(self, requests: Requests) -> None:
        """Put a step's queries (keys, values) into the graph's inputs."""
        raise NotImplementedError

    def forward(self, graph: Graph, batch: Any) -> Any:
        """Run the backend's forward while `graph` records its launches; its output."""
        raise NotImplementedError

    def captured(self, size: int) -> Any:
        """What is needed later of the metadata as capture laid it out."""
        raise NotImplementedError

    def reference(self, requests: Requests, captured: Any) -> Any:
        """What attention must give, in float64: [query tokens, heads, d]."""
        raise NotImplementedError

    def fields(self, requests: Requests, captured: Any) -> tuple[list, list]:
        """Fields of the metadata, and what they must be."""
        raise NotImplementedError


class DraftExtend(Proof):
    """A proof about draft extend of one to eight requests through graphs captured for fewer sizes.

    The control is a verification. A subclass has the `step` of its backend.
    """

    step: type[Step]

    def scenario(self, seed: int) -> Iterator[Observation]:
        return self._run(seed, "DRAFT_EXTEND_V2")

    def control(self, seed: int) -> Iterator[Observation]:
        return self._run(seed, "TARGET_VERIFY")

    def _run(self, seed: int, mode: str) -> Iterator[Observation]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        step = self.step(self.engine, mode, draw)
        return (seen for count in range(1, ROOM + 1) for seen in step(self.requests(draw, count)))

    def requests(self, draw: Any, count: int) -> Requests:
        return uneven(draw, count)


def translator(modules: dict[str, Any], pool: Pool, kv_pool: Any) -> Any:
    """What the newest releases read the page table through; it translates nothing here."""
    return modules[TRANSLATOR].KVIndexTranslator(
        req_to_token=pool.req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=kv_pool, page_size=PAGE,
        device=device(),
    )  # fmt: skip


def lay_out(backend: Any, batch: Any, buffers: Buffers, *, capture: bool) -> None:
    """Metadata of a batch, through the call that the graph runner of this release makes at capture or replay."""
    if not hasattr(backend, "init_forward_metadata_replay_cuda_graph"):  # 0.5.13 and later
        return backend.init_forward_metadata_out_graph(batch, in_capture=capture)
    shared: dict[str, Any] = {
        "bs": batch.batch_size, "encoder_lens": None, "forward_mode": batch.forward_mode, "spec_info": batch.spec_info,
    }  # fmt: skip
    if capture:
        return backend.init_forward_metadata_capture_cuda_graph(
            num_tokens=batch.batch_size * STRIDE, req_pool_indices=batch.req_pool_indices, seq_lens=batch.seq_lens, **shared
        )
    exact = batch.forward_mode.is_target_verify()  # for which the target's runner hands over the batch alone
    return backend.init_forward_metadata_replay_cuda_graph(
        req_pool_indices=batch.req_pool_indices if exact else buffers.req_pool_indices,
        seq_lens=batch.seq_lens if exact else buffers.seq_lens,
        seq_lens_sum=batch.seq_lens_sum, seq_lens_cpu=batch.seq_lens_cpu, **shared,
    )  # fmt: skip


def compared(fields: list[Any], expected: list[Any]) -> Observation:
    """Fields of the metadata, tensors or numbers, against what they must be: the relative error of the worst.

    They are counts and indices: any difference at all is an error of a tenth at least.
    """
    import torch

    seen = []
    for field, right in zip(fields, expected, strict=True):
        a, b = (torch.as_tensor(-1 if value is None else value).cpu().reshape(-1).double() for value in (field, right))
        one = observe(a, b)
        seen.append(one if torch.equal(a, b) else Observation(max(one.error, 0.1), one.bits))
    return combine(*seen)


def require_replayed(backend: Any, steps_backend: Any) -> None:
    """Raise NoSuchPath unless spec v2 captures this backend's draft-extend graph on CUDA and replays it.

    Asked of the worker's own code where the backend still has the replay that this is about (up to 0.5.12.post1): its
    `init_cuda_graphs` is run, without the rest of its module, which imports the whole server.
    """
    import ast
    import sys
    import time

    engine = Path(sys.modules["sglang"].__path__[0])
    path = source_files.path_of(engine, _WORKER)
    if path is None:
        raise NoSuchPath("there is no spec v2")
    if not hasattr(backend, "init_forward_metadata_replay_cuda_graph"):
        return
    tree = ast.parse(path.read_text())
    if not any(map(_replays, ast.walk(tree))):
        raise NoSuchPath("spec v2 never replays a draft-extend graph")
    init: Any = find(tree, "EagleDraftWorker.init_cuda_graphs")
    scope: dict[str, Any] = dict.fromkeys(_OTHERS, _Other)
    scope |= {type(one).__name__: type(one) for one in (backend, steps_backend)}
    scope |= {"_is_cuda": True, "_is_npu": False, "_is_hip": False, "_is_musa": False, "time": time, "logger": _Silent()}
    scope |= {"get_available_gpu_memory": lambda *_: 0.0, "log_info_on_rank0": lambda *_: None}
    scope |= {"EAGLEDraftExtendCudaGraphRunner": _Captured}
    scope = run_excerpt(path, init, **scope)
    worker = SimpleNamespace(
        server_args=SimpleNamespace(disable_cuda_graph=False, model_impl="auto"), speculative_num_steps=1, device="cuda",
        gpu_id=0, target_worker=SimpleNamespace(device="cuda"),
        draft_attn_backend=steps_backend, draft_extend_attn_backend=backend,
    )  # fmt: skip
    scope["init_cuda_graphs"](worker)
    if not isinstance(worker.cuda_graph_runner_for_draft_extend, _Captured):
        raise NoSuchPath("spec v2 captures no draft-extend graph of this backend on CUDA")


_OTHERS = (
    "EAGLEDraftCudaGraphRunner", "EAGLEDraftNpuGraphRunner", "EAGLEDraftExtendNpuGraphRunner", "TritonAttnBackend",
    "TritonMultiStepDraftBackend", "TRTLLMMLABackend", "TRTLLMMLAMultiStepDraftBackend",
)  # fmt: skip


def _replays(node: Any) -> bool:
    """`….cuda_graph_runner_for_draft_extend.replay(…)`"""
    owner = getattr(getattr(node, "func", None), "value", None)
    return getattr(owner, "attr", None) == "cuda_graph_runner_for_draft_extend" and node.func.attr == "replay"


class _Other:
    """In the place of classes that have no part in it."""


class _Captured:
    """In the place of the graph runner, whose construction captures."""

    def __init__(self, worker: Any):
        self.worker = worker


class _Silent:
    def info(self, *_: Any) -> None:
        pass


def stride_sabotages() -> dict[str, Any]:
    """Ways to break the correction of both fixes."""
    from attnfix.patches.sglang.shared import uniform_replay

    real = uniform_replay.uniform

    def one_request_missed(instance: Any, spec_info: Any, *sizes: Any) -> Any:
        spec = real(instance, spec_info, *sizes)
        spec.accept_length = spec.accept_length.clone()
        spec.accept_length[0] = spec_info.accept_length[0]
        return spec

    def one_too_short(instance: Any, spec_info: Any, *sizes: Any) -> Any:  # too long would write past the graph's buffers
        spec = real(instance, spec_info, *sizes)
        spec.accept_length = spec.accept_length - 1
        return spec

    return {
        "the correction does nothing": replaced(uniform_replay, "uniform", lambda instance, spec_info, *sizes: spec_info),
        "one request keeps its own length": replaced(uniform_replay, "uniform", one_request_missed),
        "the stride is one too short": replaced(uniform_replay, "uniform", one_too_short),
    }
