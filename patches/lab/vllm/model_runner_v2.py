"""Rows of Model Runner V2 behind the scheduler of `scheduling`, for cached states and for drafts of idle ranks: 0.29.0-0.33.0.

Real: the scheduler and its cache manager, of the config that the engine makes of a model; the tables of blocks, the state of a
hybrid model, dummy batches and speculators by their own constructors, and their Triton kernels, interpreted. Played: the runner
between them, with the engine's names. Emulated: models, and CUDA graphs.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Observation, cumulative

from .models import QWEN3_NEXT
from .scheduling import Engine, Served

GPU = "vllm.v1.worker.gpu"
STATE, TABLES, BUFFERS = f"{GPU}.model_states.mamba_hybrid", f"{GPU}.block_table", f"{GPU}.buffer_utils"
AUTO, MTP, MULTI = (f"{GPU}.spec_decode.{name}.speculator" for name in ("autoregressive", "mtp", "multi_module_mtp"))
_COPIES, _BATCH, _GRAPHS, _WORKER = (
    "vllm.v1.worker.mamba_utils", f"{GPU}.input_batch", f"{GPU}.cudagraph_utils", "vllm.v1.worker.gpu_worker",
)  # fmt: skip
ROWS, CONTEXT = 8, 1024
#: A block of states is 128 tokens, as a state is larger than 64 tokens of attention
LARGE_STATES = {
    **QWEN3_NEXT, "num_hidden_layers": 2, "full_attention_interval": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64,
}  # fmt: skip
_DRAFTER = "mtp.layers.0"
_DUMMY = -1  # as a key
_NONE = -1  # as a slot; no kernel promises to leave out what is below it


class RunnerV2(Served):
    """Base of the proofs. `needs` is of the first of `modules`."""

    kernel = "interpreted"

    def prepare(self) -> None:
        """Memory of the host that a GPU sees is memory."""
        super().prepare()
        buffers = self.engine[BUFFERS]
        buffers.is_uva_available = lambda: True
        buffers.get_accelerator_view_from_cpu_tensor = lambda tensor: tensor
        copies: Any = import_module(_COPIES)
        if hasattr(copies, "_TEMPORAL_TILES"):  # among how many programs a copy is shared out
            copies._TEMPORAL_TILES = 1


class _Rows:
    """The rows of requests, and the runner's tables of their blocks."""

    def __init__(self, engine: Engine, seed: int):
        import torch

        self.engine, self.draw, self.kv = engine, random.Random(seed), engine.kv_cache_config
        self.sizes = [group.kv_cache_spec.block_size for group in self.kv.kv_cache_groups]
        self.tables: Any = import_module(TABLES).BlockTables(
            block_sizes=self.sizes, kernel_block_sizes=self.sizes, max_num_reqs=ROWS, max_num_batched_tokens=CONTEXT,
            max_num_blocks_per_group=[CONTEXT // size + ROWS for size in self.sizes], device=torch.device("cpu"),
        )  # fmt: skip
        self.rows: dict[str, int] = {}
        self.seen: list[Any] = []
        self.wrong = self.read = 0

    def begin(self, name: str, blocks: Any) -> int:
        row = self.rows[name] = min(set(range(ROWS)) - set(self.rows.values()))
        self.tables.append_block_ids(row, blocks, overwrite=True)
        return row

    def grow(self, going: Any) -> None:
        """The scheduler's `going` requests get their new blocks, and the tables what was staged."""
        for name, blocks in zip(going.req_ids, going.new_block_ids):
            if blocks is not None:
                self.tables.append_block_ids(self.rows[name], blocks, overwrite=False)
        self.tables.apply_staged_writes()

    def observe(self) -> Observation:
        return Observation(self.wrong / max(self.read, 1), hashlib.sha256(repr(self.seen).encode()).hexdigest())


class CachedStates(_Rows):
    """As much of the runner as leads to a request's recurrent state. A state is a hash of all tokens up to it."""

    def __init__(self, engine: Engine, seed: int):
        import torch

        super().__init__(engine, seed)
        model: Any = import_module("vllm.model_executor.models.qwen3_next").Qwen3NextForCausalLM
        kinds = [type(group.kv_cache_spec).__name__ for group in self.kv.kv_cache_groups]
        self.groups = [at for at, kind in enumerate(kinds) if kind == "MambaSpec"]
        self.size = self.sizes[self.groups[0]]
        self.state = import_module(STATE).MambaHybridModelState(engine.config, model, None, torch.device("cpu"))
        self.states = {at: self._states(self.kv.kv_cache_groups[at].layer_names) for at in self.groups}
        if hasattr(self.state, "initialize_kv_cache"):  # from 0.33.0; before, the first step does it
            self.state.initialize_kv_cache(self.kv, self.tables)
        self.known: dict[str, Any] = {}
        self.computed = torch.zeros(ROWS, dtype=torch.int32)

    def _states(self, names: list[str]) -> list[Any]:
        """Two of each layer: a window of a convolution, and what the layer keeps of all tokens."""
        import torch

        layers = self.engine.config.compilation_config.static_forward_context
        states = []
        for name in names:
            shapes = (self.kv.num_blocks, 3, 1), (self.kv.num_blocks, 1)
            layers[name] = SimpleNamespace(kv_cache=[torch.full(shape, -1, dtype=torch.int64) for shape in shapes])
            states += layers[name].kv_cache
        return states

    def ask(self, tokens: list[int], output: int) -> Any:
        request = self.engine.add(tokens, output)
        self.known[request.request_id] = request
        return request

    def words(self, most: int) -> list[int]:
        return [self.draw.randrange(3, 128) for _ in range(self.draw.randint(most // 2, most))]

    def step(self) -> None:
        import torch

        step = self.engine.schedule()
        for name in step.finished_req_ids:
            self.rows.pop(name, None)
        fresh = {request.req_id: request.num_computed_tokens for request in step.scheduled_new_reqs}
        for request in step.scheduled_new_reqs:
            row = self.begin(request.req_id, request.block_ids)
            self.computed[row] = request.num_computed_tokens
            self.state.add_request(row, request)
        for source, target in getattr(step, "kv_cache_block_copies", None) or ():  # a block of which a part is cached
            for state in (state for states in self.states.values() for state in states):
                state[target] = state[source]
        self.grow(step.scheduled_cached_reqs)
        names, new = list(step.num_scheduled_tokens), list(step.num_scheduled_tokens.values())
        rows = torch.tensor([self.rows[name] for name in names], dtype=torch.int32)
        tables = self.tables.gather_block_tables(rows, len(names))
        batch = SimpleNamespace(num_reqs=len(names), idx_mapping=rows, query_start_loc=cumulative(new))
        self.state.preprocess_state(batch, tables, self.kv, self.computed)
        sampled = {}
        for at, (name, tokens) in enumerate(zip(names, new)):
            sampled[name] = self._compute(at, name, tokens, tables, behind_prefix=bool(fresh.get(name)))
        self.engine.finish(step, sampled)

    def _compute(self, at: int, name: str, new: int, tables: Any, behind_prefix: bool) -> list[int]:
        """The model: each layer reads the state in the block of the last token that is computed, and writes it there."""
        row = self.rows[name]
        tokens, begin = list(self.known[name].all_token_ids), int(self.computed[row])
        end = begin + new
        before, after = _hash(tokens[:begin]), _hash(tokens[:end])
        for group in self.groups:
            block = int(tables[group][at, (end - 1) // self.size])
            for state in self.states[group]:
                if begin:
                    found = set(state[block].flatten().tolist())
                    self.seen.append(sorted(found))
                    if behind_prefix:
                        self.read, self.wrong = self.read + 1, self.wrong + (found != {before})
                state[block] = after
        self.computed[row] = end
        return [self.draw.randrange(3, 128)] if end == len(tokens) else []


def _hash(tokens: list[int]) -> int:
    return int.from_bytes(hashlib.sha256(bytes(tokens)).digest()[:7], "big")


def turns(conversations: int, count: int, words: int) -> Callable[[CachedStates], None]:
    """Conversations whose turns repeat what was said, several at a time."""

    def talk(server: CachedStates) -> None:
        said: list[list[int]] = [[] for _ in range(conversations)]
        for _ in range(count):
            asked = [server.ask(so_far + server.words(words), server.draw.randint(1, 2)) for so_far in said]
            while any(not request.is_finished() for request in asked):
                server.step()
            said = [list(request.all_token_ids) for request in asked]

    return talk


class DraftingRank(_Rows):
    """A rank of a data parallel server, and the keys of its drafter.

    Emulated: the drafter's model, which writes a token's key to the slot that its forward context has for it. A replay runs
    what was captured once more, on the memory that was captured. The dispatcher's answer is the talk's: a graph of that many
    requests, or none.
    """

    def __init__(self, engine: Engine, seed: int):
        super().__init__(engine, seed)
        self.group = next(at for at, group in enumerate(self.kv.kv_cache_groups) if _DRAFTER in group.layer_names)
        self.keys: dict[int, int] = {}  # slot -> the token whose key is there
        self.speculator: Any = None

    def speculate(self, graph: bool, multi: bool) -> None:
        """With a speculator of one module, or of several, and what `set_attn` and `load_model` give it."""
        import torch

        cls = import_module(MULTI).MultiModuleMTPSpeculator if multi else import_module(MTP).MTPSpeculator
        speculator = self.speculator = cls(self.engine.config, torch.device("cpu"))
        speculator.model, speculator.draft_attn_layer_names = _Drafter(self, speculator), {_DRAFTER}
        speculator.block_tables, speculator.kv_cache_config = self.tables, self.kv
        speculator.attn_groups = [[] for _ in self.kv.kv_cache_groups]  # no metadata: nobody attends
        speculator.model_state = SimpleNamespace()
        if hasattr(speculator, "_configure_fused_multi_step_decode"):
            speculator._configure_fused_multi_step_decode()
        for name in [name for name in vars(speculator) if name.endswith("cudagraph_manager")]:
            setattr(speculator, name, _Graphs(self, graph and not name.startswith("prefill")))

    def serve(self, tokens: list[int], output: int = 1) -> Any:
        """A request up to its first token. What it finds in the cache is looked at, the rest gets its keys."""
        request = self.engine.add(tokens, output)
        done = found = 0
        while done < len(tokens):
            step = self.engine.schedule()
            for new in step.scheduled_new_reqs:
                done = found = new.num_computed_tokens
                self.begin(new.req_id, new.block_ids)
            self.grow(step.scheduled_cached_reqs)
            if step.scheduled_new_reqs and found:
                self.look(request, found)
            done += step.num_scheduled_tokens[request.request_id]
            self.engine.finish(step, {request.request_id: [7]} if done == len(tokens) else {})
        slots = self._slots(request, done)
        self.keys.update(zip(slots[found:], tokens[found:]))
        self.seen.append((found, slots))
        if request.is_finished():
            del self.rows[request.request_id]
        return request

    def look(self, request: Any, length: int) -> None:
        """At the keys of the first tokens of a request in the batch."""
        held = [self.keys.get(slot) for slot in self._slots(request, length)]
        self.read += 1
        self.wrong += held != list(request.all_token_ids)[:length]
        self.seen.append(held)

    def _slots(self, request: Any, length: int) -> list[int]:
        """Where the engine has them."""
        import torch

        row, span = (torch.tensor(values, dtype=torch.int32) for values in ([self.rows[request.request_id]], [0, length]))
        slots = self.tables.compute_slot_mappings(row, span, torch.arange(length), length)
        return list(map(int, slots[self.group, :length]))

    def idle(self, requests: int) -> None:
        """The worker is told to run a dummy batch; another rank has so many requests."""
        worker = object.__new__(import_module(_WORKER).Worker)
        worker.model_runner = SimpleNamespace(
            speculator=self.speculator, block_tables=self.tables, uniform_decode_query_len=self.engine.drafts + 1,
            decode_query_len=self.engine.drafts + 1, _dummy_run=lambda *args, **kwargs: self._dummy_run(requests),
        )  # fmt: skip
        worker.execute_dummy_batch()

    def _dummy_run(self, requests: int) -> None:
        """What the runner does to its drafter in one."""
        import torch

        tokens, batches = requests * (self.engine.drafts + 1), import_module(_BATCH)
        buffers = batches.InputBuffers(max_num_reqs=ROWS, max_num_tokens=CONTEXT, device=torch.device("cpu"))
        batch = batches.InputBatch.make_dummy(requests, tokens, buffers)
        self.tables.get_dummy_block_tables(requests)
        slots = {_DRAFTER: self.tables.get_dummy_slot_mappings(tokens)[self.group]}
        state, propose = torch.zeros(ROWS, dtype=torch.int64), self.speculator.propose
        given = dict(
            input_batch=batch, attn_metadata={}, slot_mappings=slots, aux_hidden_states=None,
            last_hidden_states=torch.zeros(tokens, self.speculator.hidden_size, dtype=self.speculator.dtype),
            num_sampled=torch.ones(requests, dtype=torch.int32), num_rejected=torch.zeros(requests, dtype=torch.int32),
            last_sampled=state.view(-1, 1), next_prefill_tokens=state.int(), temperature=torch.zeros(ROWS), seeds=state,
            dummy_run=True, skip_attn_for_dummy_run=False, draft_logits_out=None,
        )  # fmt: skip
        drafts = propose(**{name: given[name] for name in signature(propose).parameters if name in given})
        self.seen.append(drafts.tolist())

    def write(self, slots: Any) -> None:
        """The drafter writes a key of the dummy batch to each. The null block is nobody's, and seen by all."""
        size = self.sizes[self.group]
        for slot in slots.tolist():
            if slot >= 0:
                self.keys[slot] = _DUMMY
            self.wrong += slot < _NONE or (bool(self.rows) and 0 <= slot < size)


class _Drafter:
    def __init__(self, rank: DraftingRank, speculator: Any):
        self.rank, self.speculator, self.model = rank, speculator, self

    def __call__(self, input_ids: Any, positions: Any, hidden_states: Any, inputs_embeds: Any = None, **more: Any) -> Any:
        context = import_module("vllm.forward_context").get_forward_context()
        self.rank.write(context.slot_mapping[_DRAFTER][: len(input_ids)])
        return hidden_states.clone()

    def compute_logits(self, hidden_states: Any, *more: Any, **named: Any) -> Any:
        import torch

        return torch.ones(len(hidden_states), self.speculator.vocab_size).cumsum(-1)


class _Graphs:
    """The manager of a speculator's graphs: with none, or with one that runs the whole of the drafts."""

    use_breakable_cg = False

    def __init__(self, rank: DraftingRank, graph: bool):
        self.rank, self.graph = rank, graph

    def dispatch(self, num_reqs: int, num_tokens: int, *more: Any, **options: Any) -> Any:
        modes: Any = import_module("vllm.config.compilation").CUDAGraphMode
        cls = import_module(_GRAPHS).BatchExecutionDescriptor
        mode, tokens = (modes.FULL, num_reqs) if self.graph else (modes.NONE, num_tokens)
        return cls(cg_mode=mode, num_tokens=tokens, num_reqs=num_reqs)

    def run_fullgraph(self, descriptor: Any) -> Any:
        """What was captured for so many requests, on the memory that it was captured on."""
        speculator, count = self.rank.speculator, descriptor.num_reqs
        fused = getattr(speculator, "use_fused_multi_step_decode", False)
        captured = speculator._generate_fused_drafts if fused else speculator._generate_draft
        captured(count, count, {}, {_DRAFTER: self.rank.tables.slot_mappings[self.rank.group, :count]}, None)
        return speculator.draft_tokens


def idles(
    *there: bool, prompt: int = 70, graph: bool = False, multi: bool = False, early: bool = False, idle: bool = True,
    again: bool = False,
) -> Callable[[DraftingRank], None]:  # fmt: skip
    """Prompts, each of them still there behind its first token or not, and a dummy run. Then, the keys of those that are there;
    and `again` the last prompt, whose prefix comes from the cache (0.29.0 finds none of it). early: a dummy run before all."""

    def talk(rank: DraftingRank) -> None:
        rank.speculate(graph, multi)
        text = [rank.draw.randrange(1, 1 << 30) for _ in range(prompt)]
        if early:
            rank.idle(3)
        requests = [rank.serve([at, *text[1:]], output=20 if stays else 1) for at, stays in enumerate(there)]
        if idle:
            rank.idle(len(there))
        for request, stays in zip(requests, there):
            if stays:
                rank.look(request, prompt)
        if again:
            rank.serve([len(there) - 1, *text[1:], 5, 6, 7])

    return talk
