"""A server of a model with window layers, whose KV is cached by prefixes: its scheduler's part, on a machine without a GPU.

    server = window_cache.Server(page=1, window=8, slots=(256, 96), chunk=32)
    request = server.arrive(prompt, answer); server.step(); …
    server.wrong  # names of requests that have read other KV than theirs

Real: `ServerArgs`, `ModelConfig`, the pools with their allocator, the radix cache, `Req`, `PrefillAdder`, `ScheduleBatch` with
its preparation for prefill and decode. Played: the scheduler's loop, the processing of results, and the model. It writes into a
token's slot of each kind of layers what the token has seen, and looks into all slots that a token reads.

With `overlap`, a step runs as late as it may: after the next one is scheduled. It finds window slots as the engine does: those
that it reads when it is launched, and those that it writes when it runs, or from 0.5.13 when it is launched.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import code_of

from . import absent, construction  # noqa: F401  absent: its stand-ins for imports are wanted here
from .engine import accepted, module
from .tracked_states import unpinned

#: A model with layers of a sliding window that fits anywhere
WINDOW = {**construction.LLAMA, "max_position_embeddings": 512}
_ROWS, _TOKENS = 24, 1024


class Step(NamedTuple):
    """Of one launch: its requests, and for each (tokens before it, slots of all, window slots that it reads and those that it
    writes); the latter are None where they are found later."""

    requests: list[Any]
    parts: list[tuple[int, Any, Any, Any]]
    prefills: bool


class Server:
    """slots: of full layers, and of window layers; chunk: tokens of a prompt that a batch computes; limit: requests that run
    together, where one of a higher priority takes the place of another; threshold: how much higher it has to be."""

    def __init__(
        self, page: int = 1, window: int = 8, slots: tuple[int, int] = (256, 96), chunk: int | None = None,
        overlap: bool = True, limit: int | None = None, threshold: int = 0,
    ):  # fmt: skip
        import torch

        flags = ("--attention-backend", "torch_native", "--page-size", str(page))
        self.served = construction.serve(*flags, config=WINDOW, requests=_ROWS, tokens=_TOKENS, draft=False, window=True)
        self.window, self.chunk, self.overlap, self.page = window, chunk, overlap, page
        self.limit, self.threshold = limit, threshold
        self.pool, kv = self.served.req_to_token_pool, self.served.token_to_kv_pool
        kind = construction.window_allocator()
        self.slots, self.rows = slots, self.pool.available_size()
        self.allocator = kind(**accepted(kind, {
            "size": slots[0], "size_swa": slots[1], "page_size": page, "dtype": self.served.kv_cache_dtype, "device": "cpu",
            "kvcache": kv, "need_sort": False,
        }))  # fmt: skip
        self.tree = _tree(self)
        self.texts: dict[str, list[int]] = {}
        self.waiting: list[Any] = []
        self.flight: deque[Step] = deque()
        self.chunked: Any = None
        self.running = self.last = None
        #: What the slots hold of full layers, and of window layers
        self.full, self.near = (torch.zeros(size + page, dtype=torch.int64) for size in slots)
        self.wrong: set[str] = set()
        #: Of each launch, (tokens before it, with it) of its requests
        self.batches: list[Any] = []

    def arrive(self, prompt: list[int], answer: list[int], priority: int | None = None) -> Any:
        schedule, sampling = module("managers.schedule_batch"), module("sampling.sampling_params")
        wanted = sampling.SamplingParams(max_new_tokens=len(answer), ignore_eos=True)
        wanted.normalize(None)
        given = array("q", prompt) if hasattr(schedule, "array") else prompt
        name = f"r{len(self.texts)}"
        self.texts[name] = [*prompt, *answer]
        more = {} if priority is None else {"priority": priority}
        self.waiting.append(schedule.Req(name, "", given, wanted, vocab_size=64, **more))
        return self.waiting[-1]

    # The scheduler's loop

    def step(self) -> bool:
        """One turn. Whether there was anything to do."""
        with unpinned():
            if self.chunked is not None:
                self._stash(self.chunked)
            if self.last is not None:
                self._join(self.last)
            self.last = None
            batch = self._prefill() or self._decode()
            if batch is not None:
                self._launch(batch)
            while self.flight and (batch is None or not self.overlap or len(self.flight) > 1):
                self._process(self.flight.popleft())
        return batch is not None or self.chunked is not None

    def _stash(self, request: Any) -> None:
        """Cache what is computed of a prompt. Up to 0.5.8, its next chunk has another row."""
        self.tree.cache_unfinished_req(request, **accepted(self.tree.cache_unfinished_req, {"chunked": True}))
        if _gives_up_rows():
            self.pool.free(request.req_pool_idx)

    def _join(self, batch: Any) -> None:
        batch.filter_batch(keep_indices=[
            at for at, one in enumerate(batch.reqs) if one is not self.chunked and not self._ends(one)
        ])  # fmt: skip
        if batch.reqs:
            if self.running is None or not self.running.reqs:
                self.running = batch
            else:
                self.running.merge_batch(batch)

    def _prefill(self) -> Any:
        schedule = module("managers.schedule_batch")
        policy, running = (
            module("managers.schedule_policy"),
            self.running or schedule.ScheduleBatch(reqs=[], batch_is_full=False),
        )
        if not self.waiting and self.chunked is None:
            return None
        adder = policy.PrefillAdder(
            self.page, self.tree, self.allocator, running, 0.1, _TOKENS, self.chunk,
            **accepted(policy.PrefillAdder, {"priority_scheduling_preemption_threshold": self.threshold}),
        )  # fmt: skip
        if self.chunked is not None:
            self.chunked.init_next_round_input()
            self.chunked = adder.add_chunked_req(self.chunked)
        for request in self.waiting:
            full = self.limit is not None and len(running.reqs) + len(adder.can_run_list) >= self.limit
            if full and not adder.preempt_to_schedule(request, self.served.server_args):
                break
            request.init_next_round_input(self.tree)
            more = accepted(adder.add_one_req, {"truncation_align_size": None})
            busy = self.chunked is not None or adder.new_chunked_req is not None
            if busy or adder.add_one_req(request, has_chunked_req=False, **more) is not policy.AddReqResult.CONTINUE:
                break
        if not adder.can_run_list:
            return None
        self.waiting = [one for one in self.waiting if one not in adder.can_run_list]
        self.waiting += getattr(adder, "preempt_list", [])
        self.chunked = adder.new_chunked_req or self.chunked
        if self.chunked is not None:
            _count(self.chunked, 1)
        algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        batch = schedule.ScheduleBatch.init_new(
            adder.can_run_list, self.pool, self.allocator, self.tree, self.served.model_config, self.overlap, algorithm
        )
        batch.prepare_for_extend()
        self.last = batch
        return batch

    def _decode(self) -> Any:
        if self.running is None:
            return None
        self.running.filter_batch(keep_indices=[at for at, one in enumerate(self.running.reqs) if not self._ends(one)])
        while self.running.reqs and not self._fits(len(self.running.reqs) * self.page):
            self.abort(self.running.reqs[-1])
            self.running.filter_batch(keep_indices=[*range(len(self.running.reqs) - 1)])
        if not self.running.reqs:
            return None
        self.running.prepare_for_decode()
        return self.running

    def _fits(self, slots: int) -> bool:
        tree, allocator = self.tree, self.allocator
        full = allocator.full_available_size() + tree.full_evictable_size()
        return min(full, allocator.swa_available_size() + tree.swa_evictable_size()) >= slots

    def abort(self, request: Any) -> None:
        """End a request that runs, or a prompt between two chunks. A step in flight is its last one."""
        done = len(request.origin_input_ids) + len(request.output_ids)
        if done == len(self.texts[request.rid]):
            return
        if request is self.chunked:
            self.chunked = None
            for step in self.flight:
                step.requests[:] = [None if one is request else one for one in step.requests]
            _release(request, self.tree, insert=False)
            self.texts[request.rid] = self.texts[request.rid][:1]  # it runs no further
        elif any(request in step.requests for step in self.flight):
            self.texts[request.rid] = self.texts[request.rid][: done + 1]
        else:
            self.texts[request.rid] = self.texts[request.rid][:done]
            _release(request, self.tree)

    def _ends(self, request: Any) -> bool:
        """Whether its last token is there, or in flight."""
        ahead = sum(request in step.requests for step in self.flight)
        chunks = _count(request)
        return len(request.origin_input_ids) + len(request.output_ids) + ahead - chunks >= len(self.texts[request.rid])

    def _process(self, step: Step) -> None:
        self._run(step)
        for request in filter(None, step.requests):
            text, done = self.texts[request.rid], len(request.origin_input_ids) + len(request.output_ids)
            if step.prefills and _count(request):
                _count(request, -1)
                continue
            request.output_ids.append(text[done])
            if done + 1 == len(text):
                request.finished_reason = module("managers.schedule_batch").FINISH_LENGTH(length=len(request.output_ids))
                _release(request, self.tree)
            elif step.prefills:
                self.tree.cache_unfinished_req(request)

    # The model

    def _launch(self, batch: Any) -> None:
        prefills, lengths, rows = batch.forward_mode.is_extend(), batch.seq_lens.tolist(), batch.req_pool_indices.tolist()
        mapping, late = self.allocator.full_to_swa_index_mapping, finds_when_it_writes()
        parts = []
        for at, end in enumerate(lengths):
            begin = batch.prefix_lens[at] if prefills else end - 1
            slots = self.pool.req_to_token[rows[at], :end].long()
            near = mapping[slots[max(0, begin - self.window + 1) : begin]]
            parts.append((begin, slots, near, None if late else mapping[slots[begin:]]))
        self.batches.append([(begin, len(slots)) for begin, slots, *_ in parts])
        self.flight.append(Step(list(batch.reqs), parts, prefills))
        batch.output_ids = batch.seq_lens.clone()  # the next step's input, in older releases

    def _run(self, step: Step) -> None:
        import torch

        mapping = self.allocator.full_to_swa_index_mapping
        for request, (begin, slots, near, written) in zip(step.requests, step.parts, strict=True):
            if request is None:
                continue
            text = self.texts[request.rid]
            seen = torch.tensor([zlib.crc32(bytes(text[: at + 1])) for at in range(len(slots))])
            self.full[slots[begin:]] = seen[begin:]
            self.near[mapping[slots[begin:]] if written is None else written] = seen[begin:]
            before = seen[:begin]
            if not (torch.equal(self.full[slots[:begin]], before) and torch.equal(self.near[near], before[-len(near) :])):
                self.wrong.add(request.rid)

    def lost(self) -> int:
        """Slots that are neither free nor cached, locks that nobody holds, and rows that are not free."""
        tree, allocator = self.tree, self.allocator
        full = self.slots[0] - allocator.full_attn_allocator.available_size() - tree.full_evictable_size()
        near = self.slots[1] - allocator.swa_attn_allocator.available_size() - tree.swa_evictable_size()
        return (
            abs(full)
            + abs(near)
            + tree.full_protected_size()
            + tree.swa_protected_size()
            + self.rows
            - self.pool.available_size()
        )


def finds_when_it_writes() -> bool:
    """Whether each window layer looks up the slots that it writes."""
    pools = module("mem_cache.swa_memory_pool") or module("mem_cache.memory_pool")
    pool = getattr(pools, "SWAKVPool", None) or module("mem_cache.memory_pool").SWAKVPool
    return "translate_loc_from_full_to_swa" in code_of(pool.set_kv_buffer).co_names


def _count(request: Any, more: int = 0) -> int:
    """How many chunks of a prompt are in flight; the name changed in 0.5.13."""
    name = "inflight_middle_chunks" if hasattr(request, "inflight_middle_chunks") else "is_chunked"
    setattr(request, name, getattr(request, name) + more)
    return getattr(request, name)


def _release(request: Any, tree: Any, insert: bool = True) -> None:
    release = getattr(module("mem_cache.common"), "release_kv_cache", None)
    release(request, tree, is_insert=insert) if release else tree.cache_finished_req(request)


def _gives_up_rows() -> bool:
    """Whether a prompt gives its row back between two chunks: up to 0.5.8."""
    return not hasattr(module("mem_cache.base_prefix_cache"), "EvictParams")


def _tree(server: Server) -> Any:
    given = {
        "req_to_token_pool": server.pool, "token_to_kv_pool_allocator": server.allocator, "page_size": server.page,
        "disable": False, "sliding_window_size": server.window,
    }  # fmt: skip
    params: Any = getattr(module("mem_cache.cache_init_params"), "CacheInitParams", None)
    kind = module("mem_cache.swa_radix_cache").SWARadixCache
    if "params" not in accepted(kind, {"params": None}):
        return kind(**accepted(kind, given))
    return kind(params(**accepted(params, given)), **accepted(kind, {"sliding_window_size": server.window}))  # 0.5.6
