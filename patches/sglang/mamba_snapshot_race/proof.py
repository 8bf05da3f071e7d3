"""Proof of sglang.mamba-snapshot-race: a prompt in chunks, on a GPU that is behind, and others that begin as it does.

Spared: a step at a time, and prompts of which no chunk's state is kept. Real: the scheduler's choice of the next batch, up to
its prefill, and what `lab.sglang.tracked_states` names. Played: streams. The scheduler's own runs what it is given at once, the
other one once somebody waits for it.
"""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.engine import accepted, module

from . import wrap

_TREE, _POOLS = "sglang.srt.mem_cache.mamba_radix_cache", "sglang.srt.mem_cache.memory_pool"
_SCHEDULER, _PREFILL = "sglang.srt.managers.scheduler", "sglang.srt.disaggregation.prefill"
#: What the scheduler does beside: requests that waited for too long, other ranks, and logs
_PLAYED = (
    "_abort_on_waiting_timeout", "_abort_on_running_timeout", "_abort_on_queued_timeout", "maybe_prepare_mlp_sync_batch",
    "maybe_prepare_mlp_sync_batch_and_log_stats", "log_prefill_stats_late",
)  # fmt: skip


class Case(NamedTuple):
    """A prompt of so many tokens in parts of `chunk`; `pair`: on the prefill server of a pair."""

    prompt: int
    chunk: int
    overlap: bool = True
    pair: bool = False


class _Stream:
    """What it was given and has not run yet."""

    def __init__(self) -> None:
        self.given: deque[Any] = deque()

    def wait_stream(self, other: _Stream) -> None:
        other.run()

    def run(self) -> None:
        while self.given:
            self.given.popleft()()


class _Server(tracked_states.Server):
    """Computes prompts in chunks; each is launched before the result of the last one is processed."""

    def __init__(self, case: Case):
        super().__init__(tracked_states.serve("--chunked-prefill-size", str(case.chunk)), overlap=case.overlap)
        kind, own = module("managers.scheduler").Scheduler, _Stream()
        none = dict.fromkeys(("dllm_config", "last_batch", "chunked_req", "prefill_delayer"))
        off = dict.fromkeys(("require_mlp_sync", "enable_hisparse", "enable_fpm", "use_ngram_embedding"), False)
        empty = SimpleNamespace(is_empty=lambda: True, is_prefill_only=False, batch_is_full=False)
        played = {"get_new_batch_prefill": lambda self: None, **dict.fromkeys(_PLAYED, lambda self, batch=None, **_: batch)}
        self.scheduler: Any = object.__new__(type("Played", (kind,), played))
        self.scheduler.__dict__.update(
            **none, **off, enable_overlap=case.overlap, tree_cache=self.tree, req_to_token_pool=self.pool, running_batch=empty,
            server_args=self.args, spec_algorithm=module("speculative.spec_info").SpeculativeAlgorithm.from_string(None),
            tp_worker=SimpleNamespace(model_runner=SimpleNamespace(mambaish_config=self.served.model_config.hf_config)),
            device_module=SimpleNamespace(current_stream=lambda: own), forward_stream=_Stream(), copy_stream=_Stream(),
            _chunked_req_scheduled_last_iter=True, send_kv_chunk=lambda _: None,
        )  # fmt: skip
        self.case, self.results = case, deque[Any]()

    def prefill(self, prompt: list[int], answer: list[int]) -> None:
        self.arrive(prompt, answer)
        request, scheduler = self.waiting.pop(), self.scheduler
        request.init_next_round_input(self.tree)
        while True:
            scheduler.chunked_req = self._chunk(request)
            if scheduler.chunked_req is None:
                break
            choose = scheduler.process_prefill_chunk if self.case.pair else scheduler.get_next_batch_to_run
            with tracked_states.unpinned():
                choose()
            request.init_next_round_input()
        while self.results:
            self._end()

    def _chunk(self, request: Any) -> Any:
        """Launches the request's next chunk, and then processes the result of the last one."""
        schedule, policy = module("managers.schedule_batch"), module("managers.schedule_policy")
        running = schedule.ScheduleBatch(reqs=[], batch_is_full=False)
        adder = policy.PrefillAdder(
            self.tree.page_size, self.tree, self.allocator, running, 0.5, tracked_states._TOKENS, self.case.chunk
        )
        if self.scheduler.chunked_req is None:
            adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None)
            chunked = adder.new_chunked_req
        else:
            chunked = adder.add_chunked_req(request)
        if chunked is not None:
            chunked.is_chunked += 1
        algorithm = module("speculative.spec_info").SpeculativeAlgorithm.from_string(None)
        more = accepted(schedule.ScheduleBatch.init_new, {"chunked_req": chunked})
        batch = schedule.ScheduleBatch.init_new(
            [request], self.pool, self.allocator, self.tree, self.served.model_config, self.overlap, algorithm, **more
        )
        with tracked_states.unpinned():
            batch.prepare_for_extend()
        self.results.append((batch, found := []))
        stream = self.scheduler.forward_stream
        stream.given.append(lambda: found.append(self._launched(batch)))
        if not self.overlap:
            stream.run()
        if len(self.results) > self.overlap:
            self._end()
        return chunked

    def _launched(self, batch: Any) -> Any:
        self._begins = [None]
        return self._launch(batch)

    def _end(self) -> None:
        batch, found = self.results.popleft()
        while not found:
            self.scheduler.forward_stream.given.popleft()()
        self._process(batch, found[0])


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _TREE, _POOLS, _SCHEDULER, _PREFILL)
    may_lack = (_TREE,)
    kernel = "none"
    measure = "share of prompts that begin with another state than that of their cached prefix"
    needs = f"{_TREE}:MambaRadixCache.cache_unfinished_req: fork_from"
    absent = "no state is copied while it is written"
    bug = (Case(300, 128), Case(500, 64), Case(300, 128, pair=True))
    spared = (Case(300, 128, overlap=False), Case(300, 512), Case(150, 32), Case(300, 128, overlap=False, pair=True))
    broken = {
        "the correction does nothing": (wrap.wait, lambda real, scheduler: None),
        "another stream is waited for": (wrap.wait, lambda real, scheduler: (
            scheduler.device_module.current_stream().wait_stream(scheduler.copy_stream)
        )),
        "the chunk waits for the copy": (wrap.wait, lambda real, scheduler: (
            scheduler.forward_stream.wait_stream(scheduler.device_module.current_stream())
        )),
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        if not self._has(f"{_POOLS}:HybridReqToTokenPool.__init__: enable_mamba_extra_buffer"):
            raise NoSuchPath("no chunk's state is kept while steps overlap")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        text = lambda tokens: [draw.randrange(1, 64) for _ in range(tokens)]  # noqa: E731
        server, prompt = _Server(case), text(case.prompt)
        server.prefill(prompt, text(1))
        for begin in range(case.chunk, case.prompt, case.chunk):
            server.arrive(prompt[: begin + 20] + text(8), text(2))
            while server.step():
                pass
        wrong = [cached for cached, right in server.continued if not right]
        return Observation(
            len(wrong) / max(1, len(server.continued)), repr((server.continued, server.allocator.available_size()))
        )
