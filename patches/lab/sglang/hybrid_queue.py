"""A server of a hybrid model whose radix cache copies states: its scheduler's part, on a machine without a GPU.

    server = hybrid_queue.Server(tokens=96, states=12, overlap=False)
    server.arrive(prompt, answer); server.step(); …
    server.wrong, server.lost()  # requests that read what is not theirs, and what is neither free nor cached

Real: `ServerArgs`, `ModelConfig`, the pools of requests, states and KV with its allocator, `MambaRadixCache`, `Req`,
`PrefillAdder`, `ScheduleBatch` with its preparation for prefill and decode and its retraction, and the processing of results.
Played: the scheduler's loop, and the model. It writes into a token's slot, and into the state of its request, which tokens they
have seen, and looks into all that a request reads.
"""

from __future__ import annotations

import zlib
from collections import deque
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import device

from . import construction, tracked_states
from .engine import accepted, module

_ROWS = 16


def silent() -> Any:
    """Takes every message, and says nothing."""
    return tracked_states._Silent()


class Server(tracked_states.Server):
    """tokens, states: of the pools; overlap: whether a batch is launched before the last one's result is processed, or None: as
    a server launched with these flags does."""

    def __init__(
        self, tokens: int, states: int, overlap: bool | None = False, flags: tuple[str, ...] = (),
        config: dict[str, Any] = tracked_states.QWEN3_NEXT,
    ):  # fmt: skip
        import torch

        served = construction.serve("--attention-backend", "triton", *flags, config=config, draft=False)
        overlap = not served.server_args.disable_overlap_schedule if overlap is None else overlap
        self.served, self.overlap, self.args, self.sizes = served, overlap, served.server_args, (tokens, states)
        self.rows = min(_ROWS, states)  # the engine's table of states has no more
        self.texts: dict[str, list[int]] = {}
        self.waiting: list[Any] = []
        self.queue: deque[Any] = deque()
        self.running = self.last = None
        #: Names of requests that have read other KV than theirs, or begun with another state; how many were taken back
        self.wrong: set[str] = set()
        self.retracted = 0
        self.finished: list[Any] = []
        pools, params = module("mem_cache.memory_pool"), tracked_states.cache_params(served)
        kind = pools.HybridReqToTokenPool
        self.pool = kind(**accepted(kind, {
            "size": self.rows, "mamba_size": states, "max_context_len": 256, "device": device(), "enable_memory_saver": False,
            "cache_params": params, "speculative_num_draft_tokens": None, "mamba_spec_state_size": _ROWS,
            "enable_mamba_extra_buffer": False, "enable_overlap_schedule": overlap,
        }))  # fmt: skip
        self.states = self.pool.mamba_pool.mamba_cache.temporal
        self.allocator = module("mem_cache.allocator").TokenToKVPoolAllocator(
            tokens, dtype=torch.float16, device=device(), kvcache=None, need_sort=False
        )
        self.seen = torch.zeros(tokens + 1, dtype=torch.int64)
        given = {"req_to_token_pool": self.pool, "token_to_kv_pool_allocator": self.allocator, "page_size": 1}
        given["disable"] = self.args.disable_radix_cache
        tree, home = module("mem_cache.mamba_radix_cache").MambaRadixCache, module("mem_cache.cache_init_params")
        self.tree = tree(home.CacheInitParams(**given)) if home else tree(**accepted(tree, given))  # from 0.5.6, before
        self.processor = self._processor()
        none = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        vars(self.processor).update(
            page_size=1, is_mixed_chunk=False, spec_algorithm=none, current_scheduler_metrics_enabled=lambda: False
        )
        self.processor.server_args = SimpleNamespace(disaggregation_decode_enable_offload_kvcache=False, decode_log_interval=40)

    def _step(self, prefill: bool) -> bool:
        if self.last is not None and self.last.forward_mode.is_extend():
            self.last.filter_batch()
            if self.last.reqs:
                if self.running is None or not self.running.reqs:
                    self.running = self.last
                else:
                    self.running.merge_batch(self.last)
        batch = (self._prefill() if prefill and self.waiting else None) or self._decode()
        if batch is not None:
            self.queue.append((batch.copy() if self.overlap else batch, self._launch(batch)))
        if self.queue and (not self.overlap or len(self.queue) > 1 or batch is None):
            self._process(*self.queue.popleft())
        self.last = batch
        return batch is not None or bool(self.queue)

    def _prefill(self) -> Any:
        schedule, policy = module("managers.schedule_batch"), module("managers.schedule_policy")
        running = self.running or schedule.ScheduleBatch(reqs=[], batch_is_full=False)
        adder = policy.PrefillAdder(self.tree.page_size, self.tree, self.allocator, running, 0.1, self.sizes[0], None)
        for request in self.waiting:
            request.init_next_round_input(self.tree)
            more = accepted(adder.add_one_req, {"truncation_align_size": None})
            if adder.add_one_req(request, has_chunked_req=False, **more) is not policy.AddReqResult.CONTINUE:
                break
        if not adder.can_run_list:
            return None
        self.waiting = [one for one in self.waiting if one not in adder.can_run_list]
        none = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        batch = schedule.ScheduleBatch.init_new(
            adder.can_run_list, self.pool, self.allocator, self.tree, self.served.model_config, self.overlap, none
        )
        batch.prepare_for_extend()
        return batch

    def _decode(self) -> Any:
        if self.running is None:
            return None
        self.running.filter_batch()
        if self.running.reqs and not self.running.check_decode_mem():
            taken_back, *_ = self.running.retract_decode(self.args)
            self.retracted += len(taken_back)
            self.waiting += taken_back
        if not self.running.reqs:
            return None
        self.running.prepare_for_decode()
        return self.running

    def _launch(self, batch: Any) -> Any:
        import torch

        prefills, lengths = batch.forward_mode.is_extend(), batch.seq_lens.tolist()
        tokens = []
        for at, (request, row, end) in enumerate(zip(batch.reqs, batch.req_pool_indices.tolist(), lengths, strict=True)):
            text, begin = self.texts[request.rid], batch.prefix_lens[at] if prefills else end - 1
            slots = self.pool.req_to_token[row, :end].long()
            right = torch.tensor([zlib.crc32(bytes(text[: one + 1])) for one in range(end)])
            self.seen[slots[begin:]] = right[begin:]
            if not self._go_on(row, text[:begin], text[:end]) or not torch.equal(self.seen[slots], right):
                self.wrong.add(request.rid)
            tokens.append(text[end] if end < len(text) else 0)
        batch.output_ids = torch.tensor(tokens)
        home = module("managers.scheduler")
        kind = getattr(module("managers.utils"), "GenerationBatchResult", None) or home.GenerationBatchResult  # 0.5.4, before
        logits = module("layers.logits_processor").LogitsProcessorOutput(next_token_logits=None)
        given = {"logits_output": logits, "next_token_ids": torch.tensor(tokens), "can_run_cuda_graph": False}
        return kind(**accepted(kind, given))

    def _go_on(self, row: int, begun: list[int], text: list[int]) -> bool:
        """The state of a request becomes that of its text; whether it was that of what it has begun with."""
        state = int(self.pool.get_mamba_indices(row))
        right = self._held(state) == (tracked_states.seen(begun) if begun else (0, 0))
        self._write(state, tracked_states.seen(text))
        return right

    def lost(self) -> int:
        """Slots of KV and states that are neither free nor cached, locks that nobody holds, and rows that are not free."""
        tokens, states = self.sizes
        tree, free = self.tree, self.pool.mamba_pool.available_size()
        return (
            abs(tokens - self.allocator.available_size() - tree.full_evictable_size())
            + abs(states - free - tree.mamba_evictable_size())
            + tree.full_protected_size()
            + tree.mamba_protected_size()
            + self.rows
            - self.pool.available_size()
        )
