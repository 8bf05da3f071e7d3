"""Proof of vllm.dummy-draft-kv: whether keys that a drafter has in the cache stay, while its rank has nothing to do.

Real: the scheduler and the cache manager of a hybrid model with MTP; Model Runner V2's block tables and their Triton kernels,
interpreted; its dummy batch; the speculator, made by its own constructor and asked to `propose` as a dummy run does.
Emulated: the runner between them, the drafter's model, which writes a token's key to the slot that its forward context has for
it, and CUDA graphs: a replay runs what was captured once more, on the memory that was captured. The dispatcher's answer is what
the proof says: a graph of that many requests, or none.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.scheduling import Engine

_GPU = "vllm.v1.worker.gpu"
_TABLES, _BATCH, _BUFFERS = f"{_GPU}.block_table", f"{_GPU}.input_batch", f"{_GPU}.buffer_utils"
_GRAPHS, _WORKER = f"{_GPU}.cudagraph_utils", "vllm.v1.worker.gpu_worker"
_AUTO, _MTP, _EAGLE = (f"{_GPU}.spec_decode.{name}.speculator" for name in ("autoregressive", "mtp", "eagle"))
_MULTI = f"{_GPU}.spec_decode.multi_module_mtp.speculator"
_DRAFTER = "mtp.layers.0"
_DRAFTS, _PAGE, _ROWS, _PROMPT = 3, 16, 8, 70
_DUMMY = -1  # as a key
_NONE = -1  # as a slot; no kernel promises to leave out what is below it


class _Rank:
    """A rank of a data parallel server: the engine, rows of requests, and the drafter's keys."""

    def __init__(self, engine: Engine, modules: dict[str, Any], seed: int, graph: bool, multi: bool):
        self.engine, self.modules, self.draw, self.graph = engine, modules, random.Random(seed), graph
        self.config, self.kv = engine.config, engine.kv_cache_config
        self.group = next(at for at, group in enumerate(self.kv.kv_cache_groups) if _DRAFTER in group.layer_names)
        self.tables = self._tables()
        self.keys: dict[int, int] = {}  # slot -> the token whose key is there
        self.rows: dict[str, int] = {}
        self.seen: list[Any] = []
        self.wrong = self.read = 0
        self.speculator = self._speculator(multi)

    def _tables(self) -> Any:
        import torch

        sizes = [group.kv_cache_spec.block_size for group in self.kv.kv_cache_groups]
        given = dict(
            block_sizes=sizes, kernel_block_sizes=sizes, max_num_reqs=_ROWS, max_num_batched_tokens=1024, max_model_len=1024,
            max_num_blocks_per_group=[1024 // size + 8 for size in sizes], device=torch.device("cpu"),
        )  # fmt: skip
        return _made(self.modules[_TABLES].BlockTables, given)

    def _speculator(self, multi: bool) -> Any:
        """With what `set_attn` and `load_model` give it."""
        import torch

        if multi:
            cls = self.modules[_MULTI].MultiModuleMTPSpeculator
        else:
            cls = self.modules[_MTP].MTPSpeculator if self.modules.get(_MTP) else self.modules[_EAGLE].EagleSpeculator
        speculator = cls(self.config, torch.device("cpu"))
        speculator.model, speculator.draft_attn_layer_names = _Model(self, speculator), {_DRAFTER}
        speculator.block_tables, speculator.kv_cache_config = self.tables, self.kv
        speculator.attn_groups = [[] for _ in self.kv.kv_cache_groups]  # no metadata: nobody attends
        speculator.model_state = SimpleNamespace()
        if hasattr(speculator, "_configure_fused_multi_step_decode"):
            speculator._configure_fused_multi_step_decode()
        for name in [name for name in vars(speculator) if name.endswith("cudagraph_manager")]:
            setattr(speculator, name, _Graphs(self, speculator, self.graph and not name.startswith("prefill")))
        return speculator

    def serve(self, tokens: list[int], output: int = 1) -> Any:
        """A request up to its first token. What it finds in the cache is looked at, the rest gets its keys."""
        request = self.engine.add(tokens, output)
        row = self.rows[request.request_id] = next(row for row in range(_ROWS) if row not in self.rows.values())
        done = found = 0
        while done < len(tokens):
            step = self.engine.schedule()
            for new in step.scheduled_new_reqs:
                done = found = new.num_computed_tokens
                self._append(row, new.block_ids, overwrite=True)
                if found:
                    self._look(self._slots(row, found), tokens)
            for blocks in filter(None, step.scheduled_cached_reqs.new_block_ids):
                self._append(row, blocks, overwrite=False)
            done += step.num_scheduled_tokens[request.request_id]
            self.engine.finish(step, {request.request_id: [7]} if done == len(tokens) else {})
        slots = self._slots(row, done)
        self.keys.update(zip(slots[found:], tokens[found:]))
        self.seen.append((found, slots))
        if request.is_finished():
            del self.rows[request.request_id]
        return request

    def _append(self, row: int, blocks: Any, overwrite: bool) -> None:
        self.tables.append_block_ids(row, blocks, overwrite)
        self.tables.apply_staged_writes()

    def look(self, request: Any) -> None:
        """At the keys of all that a request in the batch has computed."""
        tokens = list(request.all_token_ids)[:_PROMPT]
        self._look(self._slots(self.rows[request.request_id], len(tokens)), tokens)

    def _look(self, slots: list[int], tokens: list[int]) -> None:
        held = [self.keys.get(slot) for slot in slots]
        self.read += bool(held)
        self.wrong += held != tokens[: len(held)]
        self.seen.append(held)

    def _slots(self, row: int, length: int) -> list[int]:
        """Where the engine has the first `length` tokens of a row."""
        import torch

        more = (length,) * (code_of(type(self.tables).compute_slot_mappings).co_argcount > 4)
        slots = self.tables.compute_slot_mappings(_numbers([row]), _numbers([0, length]), torch.arange(length), *more)
        return list(map(int, slots[self.group, :length]))

    def idle(self, requests: int) -> None:
        """The worker is told to run a dummy batch; another rank has so many requests."""
        worker = object.__new__(self.modules[_WORKER].Worker)
        worker.model_runner = SimpleNamespace(
            speculator=self.speculator, block_tables=self.tables, uniform_decode_query_len=self.engine.drafts + 1,
            decode_query_len=self.engine.drafts + 1, _dummy_run=lambda *args, **kwargs: self._dummy_run(requests),
        )  # fmt: skip
        worker.execute_dummy_batch()

    def _dummy_run(self, requests: int) -> None:
        """What the runner does to its drafter in one."""
        import torch

        tokens = requests * (self.engine.drafts + 1)
        buffers = self.modules[_BATCH].InputBuffers(max_num_reqs=_ROWS, max_num_tokens=1024, device=torch.device("cpu"))
        batch = self.modules[_BATCH].InputBatch.make_dummy(requests, tokens, buffers)
        self.tables.get_dummy_block_tables(requests)
        slots = {_DRAFTER: self.tables.get_dummy_slot_mappings(tokens)[self.group]}
        state, propose = torch.zeros(_ROWS, dtype=torch.int64), self.speculator.propose
        given = dict(
            input_batch=batch, attn_metadata={}, slot_mappings=slots, aux_hidden_states=None,
            last_hidden_states=torch.zeros(tokens, self.speculator.hidden_size, dtype=self.speculator.dtype),
            num_sampled=torch.ones(requests, dtype=torch.int32), num_rejected=torch.zeros(requests, dtype=torch.int32),
            last_sampled=state.view(-1, 1), next_prefill_tokens=state.int(), temperature=torch.zeros(_ROWS), seeds=state,
            dummy_run=True, skip_attn_for_dummy_run=False, draft_logits_out=None,
        )  # fmt: skip
        drafts = propose(**{name: given[name] for name in signature(propose).parameters if name in given})
        self.seen.append(drafts.tolist())

    def write(self, slots: Any) -> None:
        for slot in slots.tolist():
            if slot >= 0:
                self.keys[slot] = _DUMMY
            self.wrong += slot < _NONE or (bool(self.rows) and 0 <= slot < _PAGE)  # the null block: nobody's, and seen by all

    def observe(self) -> Observation:
        return Observation(self.wrong / max(self.read, 1), hashlib.sha256(repr(self.seen).encode()).hexdigest())


class _Model:
    """The drafter."""

    def __init__(self, rank: _Rank, speculator: Any):
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

    def __init__(self, rank: _Rank, speculator: Any, graph: bool):
        self.rank, self.speculator, self.graph = rank, speculator, graph
        self.use_breakable_cg = False

    def dispatch(self, num_reqs: int, num_tokens: int, *more: Any, **options: Any) -> Any:
        modes: Any = import_module("vllm.config.compilation").CUDAGraphMode
        cls = self.rank.modules[_GRAPHS].BatchExecutionDescriptor
        if not self.graph:
            return cls(cg_mode=modes.NONE, num_tokens=num_tokens, num_reqs=num_reqs)
        return cls(cg_mode=modes.FULL, num_tokens=num_reqs, num_reqs=num_reqs)

    def specialize_spec_tokens(self, descriptor: Any, num_speculative_tokens: int) -> Any:
        """From 0.32.0. There is one graph for every number of drafts."""
        return descriptor

    def get_cudagraph_runtime_mode(self, num_reqs: int) -> tuple[Any, int]:
        """As up to 0.17.1."""
        modes: Any = import_module("vllm.config.compilation").CUDAGraphMode
        return (modes.FULL if self.graph else modes.NONE), num_reqs

    def run_fullgraph(self, descriptor: Any) -> Any:
        """What was captured for so many requests, on the memory that it was captured on."""
        speculator = self.speculator
        names = ("_generate_fused_drafts",) * getattr(speculator, "use_fused_multi_step_decode", False)
        names += ("_generate_draft", "generate_draft")
        captured = next(getattr(speculator, name) for name in names if hasattr(speculator, name))
        count = getattr(descriptor, "num_reqs", descriptor)
        slots = {_DRAFTER: self.rank.tables.slot_mappings[self.rank.group, :count]}
        more: dict[str, Any] = {}
        if "num_speculative_steps" in signature(captured).parameters:  # from 0.32.0
            modes: Any = import_module("vllm.config.compilation").CUDAGraphMode
            more = {"cudagraph_runtime_mode": modes.NONE, "num_speculative_steps": speculator.num_speculative_steps}
        captured(count, count, {}, slots, None, **more)
        return speculator.draft_tokens


def _numbers(values: list[int]) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.int32)


def _made(cls: Any, given: dict[str, Any]) -> Any:
    return cls(**{name: given[name] for name in signature(cls).parameters if name in given})


class Proof(proof.Proof):
    modules = (_WORKER, _TABLES, _BATCH, _BUFFERS, _GRAPHS, _AUTO, _MTP, _EAGLE, _MULTI)
    may_lack = modules[1:]
    kernel = "interpreted"
    drafts = _DRAFTS
    around = {"`--speculative-config.num_speculative_tokens 1`": {"drafts": 1}}
    measure = "share of prefixes whose keys of the drafter were overwritten"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        eagle = getattr(self.engine.get(_EAGLE), "EagleSpeculator", None)
        self.auto = getattr(self.engine.get(_AUTO), "AutoRegressiveSpeculator", eagle)
        if self.auto is None or "dummy_run" not in code_of(self.auto.propose).co_varnames:
            raise NoSuchPath("a dummy run drafts nothing in Model Runner V2")
        if "slot_mapping_enabled" not in code_of(self.engine[_TABLES].BlockTables.__init__).co_varnames:
            raise NoSuchPath("the engine has no way to give a batch no slots, so that nothing could be corrected safely")
        buffers = self.engine[_BUFFERS]
        buffers.is_uva_available = lambda: True  # ordinary memory is seen by all of this machine
        buffers.get_accelerator_view_from_cpu_tensor = lambda tensor: tensor

    def scenario(self, seed: int) -> Iterator[Observation]:
        return (self._played(seed, **how) for how in self._ways())

    def _ways(self) -> list[dict[str, Any]]:
        """Launched one by one, with rows of requests that are gone and there; in a graph; by the speculator for several
        modules."""
        return [dict(there=(True, False), again=True), dict(there=(True,) * 3, graph=True)] + [
            dict(there=(True,), multi=True)
        ] * bool(self.engine.get(_MULTI))

    def control(self, seed: int) -> Observation:
        """A dummy run before the first request; and one draft, which the batch's own slots are for: a dummy batch has none."""
        before = self._played(seed, (False,), idle=False, early=True, again=True)
        return combine(before, self._played(seed, (True, False), drafts=1))

    def _played(
        self, seed: int, there: tuple[bool, ...], graph: bool = False, idle: bool = True, early: bool = False,
        multi: bool = False, again: bool = False, drafts: int = 0,
    ) -> Observation:  # fmt: skip
        """Prompts, each of them still there behind its first token or not, and a dummy run. Then, the keys of those that are
        there; and the last prompt once more, where its prefix comes from the cache (0.29.0 finds none of it)."""
        draw = random.Random(seed)
        prompt = [draw.randrange(1, 1 << 30) for _ in range(_PROMPT)]
        with Engine(drafts=drafts or self.drafts, page_size=_PAGE, max_requests=_ROWS) as engine:
            rank = _Rank(engine, self.engine, seed, graph, multi and engine.drafts > 1)  # one draft is no matter of modules
            if early:
                rank.idle(3)
            requests = [rank.serve([at, *prompt[1:]], output=20 if stays else 1) for at, stays in enumerate(there)]
            if idle:
                rank.idle(len(there))
            for request, stays in zip(requests, there):
                if stays:
                    rank.look(request)
            if again:
                rank.serve([len(there) - 1, *prompt[1:], 5, 6, 7])
            return rank.observe()

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "what was changed stays": replaced(wrap, "put_back", lambda enabled, former: None),
            "nothing is changed": replaced(wrap, "switch_off", lambda enabled: None),
        }
