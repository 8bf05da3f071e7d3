"""Proof of sglang.retraction-leak: requests are taken back for want of KV, run again, and then the server is idle.

Spared: servers whose requests fit, a step at a time, and tokens within a page. Real and played parts:
`lab.sglang.hybrid_queue`, for a model without recurrent states.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang import construction, hybrid_queue, text_queue
from attnfix.patches.lab.sglang.engine import module

from . import wrap

_PROCESSOR = "sglang.srt.managers.scheduler_output_processor_mixin"
_RESULTS = f"{_PROCESSOR}:SchedulerOutputProcessorMixin.process_batch_result_decode"
_SCHEDULE = "sglang.srt.managers.schedule_batch"


class Case(NamedTuple):
    """`requests`: (tokens of the prompt, of the answer); `tokens`: of the KV pool, in pages; `mixed`: whether prompts that come
    later ride with requests that decode."""

    requests: tuple[tuple[int, int], ...]
    tokens: int
    page: int = 1
    overlap: bool = True
    mixed: bool = False


class _Server(hybrid_queue.Server):
    def __init__(self, case: Case):
        import torch

        flags = ("--attention-backend", "torch_native", "--page-size", str(case.page))
        config = {**construction.LLAMA, "max_position_embeddings": 512}
        served = self.served = construction.serve(*flags, config=config, requests=16, tokens=case.tokens, draft=False)
        self.overlap, self.args, self.sizes, self.mixed = case.overlap, served.server_args, (case.tokens, 0), case.mixed
        self.pool, self.allocator = served.req_to_token_pool, served.token_to_kv_pool_allocator
        self.rows, self.slots = self.pool.available_size(), self.allocator.available_size()
        self.texts: dict[str, list[int]] = {}
        self.waiting: list[Any] = []
        self.queue: deque[Any] = deque()
        self.finished: list[Any] = []
        self.wrong: set[str] = set()
        self.running, self.last, self.retracted = None, None, 0
        self.seen = torch.zeros(case.tokens + case.page, dtype=torch.int64)
        self.tree = text_queue._tree(served, False)
        self.processor = self._processor()
        none = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        self.processor.__dict__.update(
            page_size=case.page, is_mixed_chunk=case.mixed, spec_algorithm=none,
            server_args=SimpleNamespace(disaggregation_decode_enable_offload_kvcache=False, decode_log_interval=40),
            current_scheduler_metrics_enabled=lambda: False,
        )  # fmt: skip

    def _prefill(self) -> Any:
        batch = super()._prefill()
        if batch is not None and self.mixed and (decoding := self._decode()):
            batch.mix_with_running(decoding)
            batch.decoding_reqs = decoding.reqs
            self.running = None
        return batch

    def _go_on(self, *_: Any) -> bool:
        return True

    def lost(self) -> int:
        """Slots that are neither free nor cached, locks that nobody holds, and rows that are not free."""
        slots = self.slots - self.allocator.available_size() - self.tree.evictable_size()
        return abs(slots) + self.tree.protected_size() + self.rows - self.pool.available_size()


_FULL, _ODD = ((20, 20), (20, 20), (12, 24)), ((23, 20), (20, 20), (13, 24))
#: Some are taken back with a page full, and others within one
_BOTH = ((18, 23), (21, 24), (10, 25), (24, 24), (17, 22))
_COME = ((20, 20), (20, 20), (12, 24), (9, 20), (7, 12))


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _SCHEDULE, _PROCESSOR)
    may_lack = (_PROCESSOR,)
    kernel = "none"
    needs = f"{_RESULTS}: hacky_process_eagle_overlap_result"  # the releases that pass over a token in flight alone have it
    absent = "the slot of a token in flight is freed as its request is taken back, or with the result of its step"
    measure = "1 where KV of an idle server is neither free nor cached, or a request reads what is not its own"
    bug = (Case(_FULL, 80), Case(_ODD, 80, 2), Case(_BOTH, 76, 2), Case(_COME, 96, mixed=True))
    spared = (
        Case(_FULL, 400), Case(_FULL, 80, overlap=False), Case(_ODD, 80, 2, overlap=False), Case(_COME, 400, mixed=True),
        Case(_FULL, 80, 4),  # the token in flight lies in a page that is free
    )  # fmt: skip
    broken = {
        "no slot is left over": (wrap.next_page, lambda real, tokens, page: 1 << 30),
        "all pages are freed": (wrap.next_page, lambda real, tokens, page: tokens),
        "pages are freed a token late": (wrap.next_page, lambda real, tokens, page: real(tokens, page) + page // 2),
    }

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        server = _Server(case)
        for number, (prompt, answer) in enumerate(case.requests):
            server.arrive([draw.randrange(1, 64) for _ in range(prompt)], [1] * answer)
            if case.mixed and number:
                server.step()
        while server.step():
            pass
        outcome = [(one.rid, list(one.output_ids)) for one in server.finished], server.retracted, server.lost(), server.wrong
        return Observation(float(bool(server.lost() or server.wrong)), hashlib.sha256(repr(outcome).encode()).hexdigest())
