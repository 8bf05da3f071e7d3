"""Proof of vllm.mamba-state-column: of which tokens is the recurrent state that a request begins with, behind a cached prefix?

Real: the config, whose block sizes and groups of layers are the engine's; the scheduler and its cache manager; the model state
and the tables of blocks of Model Runner V2 by their constructors, and their Triton kernels, interpreted, which copy the states.
What the model runner does between them is done here, with the engine's names, and the model is emulated: a state is a hash of
all tokens up to it. The batch is no `InputBatch`, of which the model state reads three fields.
"""

from __future__ import annotations

import hashlib
import random
from contextlib import ExitStack
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, cumulative, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.scheduling import QWEN3_NEXT, Engine

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_STATE, _TABLES = "vllm.v1.worker.gpu.model_states.mamba_hybrid", "vllm.v1.worker.gpu.block_table"
_BUFFERS, _COPIES = "vllm.v1.worker.gpu.buffer_utils", "vllm.v1.worker.mamba_utils"
#: A block of states is 128 tokens, as a state is larger than 64 tokens of attention
_MODEL = {
    **QWEN3_NEXT, "num_hidden_layers": 2, "full_attention_interval": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64,
}  # fmt: skip
_PAGE, _CONTEXT, _ROWS = 64, 1024, 8
#: A drafter's layer: its tokens take twice the memory of the target's, so a block of them is half as long
_WINDOWED = {"per_layer_sliding_window": 64, "num_kv_heads": 4}


class _Server:
    """As much of Model Runner V2 as leads to a request's recurrent state."""

    def __init__(self, engine: Engine, modules: dict[str, Any], seed: int):
        import torch

        model: Any = import_module("vllm.model_executor.models.qwen3_next").Qwen3NextForCausalLM
        self.engine, self.draw, device = engine, random.Random(seed), torch.device("cpu")
        self.cache: Any = engine.kv_cache_config
        groups = [(at, group) for at, group in enumerate(self.cache.kv_cache_groups)]
        self.groups = [at for at, group in groups if type(group.kv_cache_spec).__name__ == "MambaSpec"]
        sizes = [group.kv_cache_spec.block_size for _, group in groups]
        self.size = sizes[self.groups[0]]
        self.state = modules[_STATE].MambaHybridModelState(engine.config, model, None, device)
        given = dict(
            block_sizes=sizes, kernel_block_sizes=sizes, max_num_reqs=_ROWS, max_num_batched_tokens=_CONTEXT, device=device,
            max_num_blocks_per_group=[-(-_CONTEXT // size) for size in sizes],
        )  # fmt: skip
        cls = modules[_TABLES].BlockTables
        self.tables = cls(**{name: given[name] for name in signature(cls.__init__).parameters if name in given})
        self.states = {at: self._states(self.cache.kv_cache_groups[at].layer_names) for at in self.groups}
        if hasattr(self.state, "initialize_kv_cache"):  # from 0.33.0; before, the first step does it
            self.state.initialize_kv_cache(self.cache, self.tables)
        self.rows: dict[str, int] = {}
        self.known: dict[str, Any] = {}
        self.computed = torch.zeros(_ROWS, dtype=torch.int32)
        self.begun = self.wrong = 0
        self.seen: list[Any] = []

    def _states(self, names: list[str]) -> list[Any]:
        """Two of each layer: a window of a convolution, and what the layer keeps of all tokens."""
        import torch

        layers = self.engine.config.compilation_config.static_forward_context
        states = []
        for name in names:
            shapes = (self.cache.num_blocks, 3, 1), (self.cache.num_blocks, 1)
            layers[name] = SimpleNamespace(kv_cache=[torch.full(shape, -1, dtype=torch.int64) for shape in shapes])
            states += layers[name].kv_cache
        return states

    def talk(self, conversations: int, turns: int, words: int) -> None:
        """Conversations whose turns repeat what was said, several at a time."""
        said: list[list[int]] = [[] for _ in range(conversations)]
        for _ in range(turns):
            asked = [self.engine.add(so_far + self._words(words), output=self.draw.randint(1, 2)) for so_far in said]
            self.known |= {request.request_id: request for request in asked}
            while any(not request.is_finished() for request in asked):
                step = self.engine.schedule()
                self.engine.finish(step, self._run(step))
            said = [list(request.all_token_ids) for request in asked]

    def _words(self, most: int) -> list[int]:
        return [self.draw.randrange(3, 128) for _ in range(self.draw.randint(most // 2, most))]

    def _run(self, step: Any) -> dict[str, list[int]]:
        import torch

        for name in step.finished_req_ids:
            self.rows.pop(name, None)
        fresh = {request.req_id: request.num_computed_tokens for request in step.scheduled_new_reqs}
        for request in step.scheduled_new_reqs:
            row = self.rows[request.req_id] = min(set(range(_ROWS)) - set(self.rows.values()))
            self.computed[row] = request.num_computed_tokens
            self.state.add_request(row, request)
            self.tables.append_block_ids(row, request.block_ids, overwrite=True)
        going = step.scheduled_cached_reqs
        for name, blocks in zip(going.req_ids, going.new_block_ids):
            if blocks is not None:
                self.tables.append_block_ids(self.rows[name], blocks, overwrite=False)
        for source, target in getattr(step, "kv_cache_block_copies", None) or ():  # a block of which a part is cached
            for state in (state for states in self.states.values() for state in states):
                state[target] = state[source]
        self.tables.apply_staged_writes()
        names, new = list(step.num_scheduled_tokens), list(step.num_scheduled_tokens.values())
        rows = torch.tensor([self.rows[name] for name in names], dtype=torch.int32)
        tables = self.tables.gather_block_tables(rows, len(names))
        batch = SimpleNamespace(num_reqs=len(names), idx_mapping=rows, query_start_loc=cumulative(new))
        self.state.preprocess_state(batch, tables, self.cache, self.computed)
        sampled = {}
        for at, (name, tokens) in enumerate(zip(names, new)):
            sampled[name] = self._compute(at, name, tokens, tables, behind_prefix=bool(fresh.get(name)))
        return sampled

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
                        self.begun, self.wrong = self.begun + 1, self.wrong + (found != {before})
                state[block] = after
        self.computed[row] = end
        return [self.draw.randrange(3, 128)] if end == len(tokens) else []

    def observe(self) -> Observation:
        return Observation(self.wrong / max(self.begun, 1), hashlib.sha256(repr(self.seen).encode()).hexdigest())


def _hash(tokens: list[int]) -> int:
    return int.from_bytes(hashlib.sha256(bytes(tokens)).digest()[:7], "big")


class Proof(proof.Proof):
    modules = (_STATE, _TABLES, _BUFFERS, _COPIES, _SCHEDULER)
    may_lack = (_STATE, _TABLES, _BUFFERS, _COPIES)
    kernel = "interpreted"
    measure = "share of states behind a cached prefix that are of other tokens"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        state = getattr(self.engine.get(_STATE), "MambaHybridModelState", None)
        if not hasattr(state, "preprocess_state"):
            raise NoSuchPath("Model Runner V2 does not take recurrent states from the cache")
        # 0.28.0 ends chunks with the shorter blocks, so that what is cached may be of other tokens in every column
        if "prefill_checkpoint" not in Path(self.engine[_SCHEDULER].__file__).read_text():
            raise NoSuchPath("states are cached at the ends of shorter blocks: no column is the right one")

    def scenario(self, seed: int) -> Observation:
        return self._talk(seed, _WINDOWED)

    def control(self, seed: int) -> Observation:
        """Blocks of one size, as without such a drafter."""
        return self._talk(seed, None)

    def _talk(self, seed: int, drafter: Any) -> Observation:
        with ExitStack() as stack:
            stack.enter_context(self._ordinary_memory())
            server = _Server(self._entered(drafter, stack), self.engine, seed)
            server.talk(conversations=2, turns=3, words=260)
            return server.observe()

    def _entered(self, drafter: Any, stack: ExitStack) -> Engine:
        engine = Engine(
            _MODEL, backend="flashinfer.FlashInferBackend", drafter=drafter, page_size=_PAGE, context=_CONTEXT,
            max_tokens=2048, max_requests=_ROWS, blocks=64,
        )  # fmt: skip
        stack.push(engine.__exit__)  # a refusal comes after the worker was entered
        try:
            return engine.__enter__()
        except AssertionError as refused:
            if "hash_block_size" not in str(refused):
                raise
            raise NoSuchPath("no server starts with blocks of two sizes beside states that are cached") from refused

    def _ordinary_memory(self) -> ExitStack:
        """Memory of the host that a GPU sees is memory."""
        stack, buffers = ExitStack(), self.engine[_BUFFERS]
        for name in ("get_accelerator_view_from_cpu_tensor", "get_cuda_view_from_cpu_tensor"):
            if hasattr(buffers, name):
                stack.enter_context(replaced(buffers, name, lambda tensor: tensor))
        stack.enter_context(replaced(buffers, "is_uva_available", lambda: True))
        if hasattr(self.engine[_COPIES], "_TEMPORAL_TILES"):  # among how many programs a copy is shared out
            stack.enter_context(replaced(self.engine[_COPIES], "_TEMPORAL_TILES", 1))
        return stack

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real, size_of, once = wrap.column, wrap.size_of_state_block, [True]

        def for_the_first(instance: Any) -> int:
            first, once[:] = bool(once), []
            return size_of(instance) if first else int(instance.cache_config.block_size)

        return {
            "the column after": replaced(wrap, "column", lambda computed, size: real(computed, size) + 1),
            "that of the next token": replaced(wrap, "column", lambda computed, size: computed // size),
            "by the size of attention's blocks": replaced(
                wrap, "size_of_state_block", lambda instance: instance.cache_config.block_size
            ),
            "for the first request alone": replaced(wrap, "size_of_state_block", for_the_first),
        }
