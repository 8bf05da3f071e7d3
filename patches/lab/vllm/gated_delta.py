"""A layer of Gated DeltaNet with speculative decoding, step by step: 0.11.0-0.33.0.

Real: the builder of the layer's metadata, by its own constructor from a Qwen3-Next config and its spec, and the batch; with
graphs, the V1 runner's decision whether a batch is a decode step. Emulated: the dispatcher, which has a full graph for every
uniform batch; the graph, whose replay runs the layer again with the metadata of capture; and the layer, a gated linear
recurrence that reads and writes states where the metadata says, and skips the null block, as the engine's kernels do.

A case is the drafts of a server, whether it has graphs, and its steps in a row:

    bug = case(step(a=20, b=9), step(a=verify(), b=1)), case(step(a=4), step(a=verify(), b=4), drafts=3, graphs=True)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.proof import Cases, Observation, combine, cumulative, observe

from . import kernels
from .construction import Worker
from .models import QWEN3_NEXT

RUNNER, BUILDER = "vllm.v1.worker.gpu_model_runner", "vllm.v1.attention.backends.gdn_attn"
_CACHE, _CONTEXT = "vllm.v1.kv_cache_interface", "vllm.forward_context"
_WIDTH, _DECAY = 16, 0.9  # of a head; what is kept of a state per token
ROOM, _TOKENS = 4, 256  # requests; tokens of a step
ATTENTION = "flash_attn.FlashAttentionBackend"
FULL, EAGER = "FULL", "PIECEWISE"


@dataclass(frozen=True)
class Verify:
    """A decode. drafts: None for those of the server. kept: how many of its tokens, the sampled one too; None for a draw."""

    drafts: int | None = None
    kept: int | None = None


@dataclass(frozen=True)
class Case:
    steps: tuple[Mapping[str, int | Verify], ...]
    drafts: int
    graphs: bool
    where: str = ""


def verify(drafts: int | None = None, kept: int | None = None) -> Verify:
    return Verify(drafts, kept)


def step(**requests: int | Verify) -> Mapping[str, int | Verify]:
    """Requests of a step, in the order of their rows: so many known tokens and no drafts, or a verification."""
    return requests


def case(*steps: Mapping[str, int | Verify], drafts: int = 3, graphs: bool = False) -> Case:
    return Case(steps, drafts, graphs)


class Request:
    """Tokens that are computed, and those that are known; how many the last step kept; the right state, in float64."""

    def __init__(self, slot: int):
        self.slot, self.computed, self.known, self.accepted = slot, 0, 0, 1
        self.state: Any = None

    def asks(self, new: int | Verify) -> None:
        """What is known once it has this step."""
        self.known = self.computed + 1 if isinstance(new, Verify) else max(self.known, self.computed) + new


class Server:
    """One layer's states, and what the runner keeps between steps. Block 0 is the null block."""

    def __init__(self, drafts: int, graphs: bool, seed: int):
        import torch

        self.drafts, self.columns, self.draw = drafts, drafts + 1, torch.Generator().manual_seed(seed)
        speculative = {"method": "ngram", "num_speculative_tokens": drafts, "prompt_lookup_max": 2}
        sizes = {"cudagraph_capture_sizes": [self.columns * count for count in range(1, ROOM + 1)]}
        captured: dict[str, Any] = {"graphs": "FULL_AND_PIECEWISE", "compilation": sizes} if graphs else {}
        self.worker = self._launched(speculative=speculative, **captured)
        compilation = self.worker.config.compilation_config
        for name in ("max_capture_size", "max_cudagraph_capture_size"):  # where there is a GPU, the engine sets it
            if getattr(compilation, name, 0) is None:
                setattr(compilation, name, self.columns * ROOM)
        self.states = self._random(1 + ROOM * self.columns, _WIDTH, _WIDTH)  # of requests long gone
        self.q, self.k, self.v, self.out = (torch.zeros(_TOKENS, _WIDTH).double() for _ in range(4))
        self.starts, self.seq_lens = torch.zeros(ROOM + 1, dtype=torch.int32), torch.zeros(ROOM, dtype=torch.int32)
        self.pages = torch.zeros(ROOM, self.columns, dtype=torch.int32)
        self.accepted = torch.ones(ROOM, dtype=torch.int32)
        self.requests: dict[str, Request] = {}
        self.graphs: dict[int, Graph] = {}
        with self.worker:
            self.builder = self._builder()
            for size in range(1, ROOM + 1) if graphs else ():
                rows = [(Request(0), self.columns)] * size
                metadata = self.builder.build_for_cudagraph_capture(self._batch(rows, padding=True))
                self.graphs[size] = graph = Graph()
                graph.recorded(self._layer)(metadata)

    def _launched(self, **more: Any) -> Worker:
        cache = {"enable_prefix_caching": False}
        return Worker(QWEN3_NEXT, backend=ATTENTION, max_requests=ROOM, cache=cache, **more)

    def _builder(self) -> Any:
        import torch

        spec = import_module(_CACHE).MambaSpec(
            block_size=1 << 20, shapes=((3, 64), (2, 16, 16)), dtypes=(torch.bfloat16, torch.float32),
            num_speculative_blocks=self.drafts,
        )  # fmt: skip
        return import_module(BUILDER).GDNAttentionMetadataBuilder(spec, ["layer"], self.worker.config, torch.device("cpu"))

    def _random(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, generator=self.draw).double() * _WIDTH**-0.5

    def step(self, plan: Mapping[str, int | Verify]) -> Observation:
        """How right the outputs are, and the states that requests go on from."""
        import torch

        requests = [self.requests.setdefault(name, Request(len(self.requests))) for name in plan]
        drafts = [self._drafts(new) for new in plan.values()]
        rows = [(each, new if isinstance(new, int) else count + 1) for each, new, count in zip(requests, plan.values(), drafts)]
        for request, new in zip(requests, plan.values()):
            request.asks(new)
        for x in (self.q, self.k, self.v):
            x.copy_(self._random(*x.shape))
        with self.worker:
            batch = self._batch(rows)
            mode = decide(self.worker.config, self.columns, rows) if self.graphs else EAGER
            more = {}
            if max(drafts) >= 0:
                accepted, counts = self.accepted[: len(rows)], torch.tensor(drafts, dtype=torch.int32)
                more = {"num_accepted_tokens": accepted, "num_decode_draft_tokens_cpu": counts}
            metadata = self.builder.build(0, batch, **more)
        if mode == FULL:
            self.graphs[len(rows)].replay()
        else:
            self._layer(metadata)
        right = self._reference(rows, plan)
        held = [self.states[int(self.pages[at, request.accepted - 1])] for at, request in enumerate(requests)]
        tokens = sum(new for _, new in rows)
        return observe(torch.cat([self.out[:tokens].flatten(), torch.stack(held).flatten()]), right)

    def _drafts(self, new: int | Verify) -> int:
        """-1: none."""
        if isinstance(new, int):
            return -1
        return self.drafts if new.drafts is None else new.drafts

    def _batch(self, rows: list[tuple[Request, int]], padding: bool = False) -> Any:
        """In the memory that the runner has for it."""
        import torch

        count = len(rows)
        self.starts[: count + 1] = cumulative(new for _, new in rows)
        self.pages.zero_()
        for at, (request, new) in enumerate(rows):
            self.seq_lens[at] = request.computed + new
            if not padding:
                self.pages[at] = 1 + request.slot * self.columns + torch.arange(self.columns)
                self.accepted[at] = request.accepted
        return self.worker.batch(
            [request.computed for request, _ in rows], [new for _, new in rows], query_start_loc=self.starts[: count + 1],
            seq_lens=self.seq_lens[:count], block_table_tensor=self.pages[:count],
            is_prefilling=torch.tensor([request.computed < request.known - 1 for request, _ in rows]),
        )  # fmt: skip

    def _layer(self, metadata: Any) -> None:
        """The layer over all tokens of a batch: verified drafts where its metadata says so, else prefills or decodes."""
        spec = metadata.spec_sequence_masks is not None
        if spec:
            starts, tokens = metadata.spec_query_start_loc.tolist(), _tokens(metadata, drafts=True)
            for at, kept in enumerate(metadata.num_accepted_tokens.tolist()[: metadata.num_spec_decodes]):
                blocks = metadata.spec_state_indices_tensor[at].tolist()
                self._run(tokens[starts[at] : starts[at + 1]], blocks[kept - 1], blocks)
        if metadata.num_prefills or metadata.num_decodes:
            starts = metadata.non_spec_query_start_loc.tolist()
            tokens = _tokens(metadata, drafts=False) if spec else list(range(starts[-1]))
            initial = metadata.has_initial_state
            for at, block in enumerate(metadata.non_spec_state_indices_tensor.tolist()[: len(starts) - 1]):
                read = 0 if initial is not None and not initial[at] else block
                mine = tokens[starts[at] : starts[at + 1]]
                self._run(mine, read, [0] * (len(mine) - 1) + [block])

    def _run(self, tokens: list[int], read: int, written: list[int]) -> None:
        """Tokens of one request from the state of block `read`, whose states go to the blocks `written`."""
        import torch

        state = self.states[read].clone() if read > 0 else torch.zeros(_WIDTH, _WIDTH).double()
        for token, block in zip(tokens, written):
            state = self._after(state, token)
            self.out[token] = self.q[token] @ state
            if block > 0:
                self.states[block] = state

    def _after(self, state: Any, token: int) -> Any:
        return _DECAY * state + self.k[token, :, None] * self.v[token]

    def _reference(self, rows: list[tuple[Request, int]], plan: Mapping[str, int | Verify]) -> Any:
        """The right outputs, and states behind what is kept, which the next step builds on."""
        import torch

        at, outs = 0, []
        for (request, count), new in zip(rows, plan.values()):
            state = torch.zeros(_WIDTH, _WIDTH).double() if request.state is None else request.state
            after = []
            for token in range(at, at + count):
                state = self._after(state, token)
                after.append(state)
                outs.append(self.q[token] @ state)
            at += count
            kept = count
            if isinstance(new, Verify):
                kept = new.kept or int(torch.randint(1, count + 1, (1,), generator=self.draw))
            request.accepted = kept if isinstance(new, Verify) else 1
            request.state, request.computed = after[kept - 1], request.computed + kept
        states = torch.stack([request.state for request, _ in rows])
        return torch.cat([torch.stack(outs).flatten(), states.flatten()])


def _tokens(metadata: Any, drafts: bool) -> list[int]:
    """Where the tokens of requests with drafts lie, or those of the others: indices, and up to 0.11.0 a mask."""
    import torch

    if hasattr(metadata, "spec_token_indx"):
        return list((metadata.spec_token_indx if drafts else metadata.non_spec_token_indx).tolist())
    mask = metadata.spec_token_masks
    mask = torch.ones(int(metadata.spec_query_start_loc[-1]), dtype=torch.bool) if mask is None or not mask.numel() else mask
    return list((mask if drafts else ~mask).nonzero().flatten().tolist())


def decide(config: Any, length: int, rows: list[tuple[Request, int]]) -> str:
    """What the runner decides for a batch, `length` being that of a decode step: a full graph, or none."""
    import numpy as np

    module: Any = import_module(RUNNER)
    scheduled = np.array([new for _, new in rows], dtype=np.int32)
    columns = [[getattr(request, name) for request, _ in rows] for name in ("computed", "known")]
    computed, known = (np.array(column, dtype=np.int32) for column in columns)
    runner = object.__new__(module.GPUModelRunner)
    runner.__dict__.update(
        uniform_decode_query_len=length, num_spec_tokens=length - 1, speculative_config=config.speculative_config,
        vllm_config=config, parallel_config=config.parallel_config, compilation_config=config.compilation_config,
        model_config=config.model_config, cudagraph_dispatcher=SimpleNamespace(dispatch=partial(dispatch, descriptor())),
        input_batch=SimpleNamespace(
            num_reqs=len(rows), lora_id_to_lora_request={}, num_computed_tokens_cpu=computed, num_tokens_no_spec=known,
            num_prompt_tokens=known,
        ),
    )  # fmt: skip
    mode: str = runner._determine_batch_execution_and_padding(
        num_tokens=int(scheduled.sum()), num_reqs=len(rows), num_scheduled_tokens_np=scheduled,
        max_num_scheduled_tokens=int(scheduled.max()), use_cascade_attn=False,
    )[0]  # fmt: skip
    return mode


def descriptor() -> Any:
    """The engine's class of what a graph is captured for."""
    return import_module(_CONTEXT).BatchDescriptor


def dispatch(descriptor: Any, num_tokens: int, uniform_decode: bool = False, **others: Any) -> tuple:
    return FULL if uniform_decode else EAGER, descriptor(num_tokens)


class GatedDelta(Cases):
    """Base of the proofs. A server that an assertion ends is infinitely wrong."""

    modules: tuple[str, ...] = (BUILDER,)
    may_lack: tuple[str, ...] = (BUILDER,)

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        server = Server(case.drafts, case.graphs, seed)
        try:
            return combine(*(server.step(plan) for plan in case.steps))
        except AssertionError as ended:
            return Observation(math.inf, hashlib.sha256(str(ended).encode()).hexdigest())
