"""Proof of sglang.future-slots: requests that decode, then prompts in many parts, then the former again.

Real: what makes the ring, `Scheduler.init_overlap` or up to 0.5.3 the worker's client with its thread, and the ring. Played:
the order of batches, and the model, which answers with other tokens for each row of each batch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe
from attnfix.patches.lab.sglang import absent, construction  # noqa: F401  the stand-ins for imports of `absent` are wanted here
from attnfix.patches.lab.sglang.engine import accepted

from . import wrap

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_SCHEDULER = "sglang.srt.managers.scheduler"
_RING = "sglang.srt.managers.overlap_utils"
_CLIENT = "sglang.srt.managers.tp_worker_overlap_thread"
_SPEC = "sglang.srt.speculative.spec_info"
_DRAFTS = f"{_RING}:FutureMap._lazy_init_buf"
_PER_DRAFT = ("topk_p", "topk_index", "hidden_states", "verified_id", "bonus_tokens", "new_seq_lens")


class Case(NamedTuple):
    """`prompts`: of each, how many parts it is computed in, one a batch, while `decoding` requests wait. The cache holds
    `tokens`, a part is of up to `chunk`."""

    prompts: tuple[int, ...]
    running: int = 4
    decoding: int = 2
    tokens: int = 1024
    chunk: int = 16
    drafts: bool = False
    where: str = ""


def _launched(case: Case) -> Any:
    return SimpleNamespace(
        chunked_prefill_size=case.chunk,
        disaggregation_mode="null",
        enable_multi_layer_eagle=False,
        speculative_algorithm="EAGLE",
    )


class _Scheduler:
    """The scheduler's ring, as the scheduler makes it and each batch uses it."""

    def __init__(self, proof: Proof, case: Case):
        kind, names = proof.engine[_SCHEDULER].Scheduler, proof.engine[_SPEC].SpeculativeAlgorithm
        drafter = names.EAGLE if case.drafts else names.NONE
        scheduler, launched = object.__new__(kind), _launched(case)
        construction.publish(launched)
        scheduler.__dict__.update(
            enable_overlap=True, device="cpu", max_running_requests=case.running, max_total_num_tokens=case.tokens,
            chunked_prefill_size=case.chunk, server_args=launched, spec_algorithm=drafter,
            model_config=SimpleNamespace(context_len=case.tokens), forward_stream=None,
        )  # fmt: skip
        scheduler.init_overlap()
        self.ring, self.drafts = scheduler.future_map, case.drafts

    def step(self, ids: Any, tokens: Any) -> tuple[Any, Any]:
        """Of a batch that is given such tokens and answers with those: the former as the model gets them, what stands for the
        latter."""
        ring, count = self.ring, len(tokens)
        if self.drafts:
            return self._draft(ids, tokens)
        batch = SimpleNamespace(input_ids=ids.clone(), spec_info=None)
        if hasattr(ring, "update_ct"):
            at = ring.update_ct(count)
            ring.resolve_future(batch)
            ring.store_to_map(at, count, tokens)
            return batch.input_ids, ring.update_next_future(at, count)
        taken = ring.alloc_future_indices(count)
        ring.resolve_future(batch)
        given = {"future_indices": taken, "next_token_ids": tokens, "batch_result": SimpleNamespace(next_token_ids=tokens)}
        ring.store_to_map(**accepted(ring.store_to_map, given))
        return batch.input_ids, -taken.indices

    def _draft(self, ids: Any, tokens: Any) -> tuple[Any, Any]:
        import torch

        class OfOneStream(torch.Tensor):
            def record_stream(self, *_: Any) -> None:
                """A host has one stream."""

        taken = self.ring.alloc_future_indices(len(tokens))
        draft = SimpleNamespace(future_indices=SimpleNamespace(indices=(-ids).as_subclass(OfOneStream)))
        if bool((ids < 0).all()):
            self.ring.resolve_future(SimpleNamespace(input_ids=ids, spec_info=draft))
            newest = draft.bonus_tokens if hasattr(draft, "bonus_tokens") else draft.verified_id  # its name from 0.5.12 on
            ids = newest.as_subclass(torch.Tensor)
        made = {name: tokens[:, None] if name in _PER_DRAFT[:3] else tokens for name in _PER_DRAFT}
        self.ring.store_to_map(taken, SimpleNamespace(next_draft_input=SimpleNamespace(**made)))
        return ids, -taken.indices

    def close(self) -> None:
        pass


class _Worker:
    """A worker whose model answers with the tokens that its batch names."""

    device = "cpu"

    def __init__(self, case: Case):
        self.max_running_requests, self.max_total_num_tokens = case.running, case.tokens

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_"):
            return lambda *_: None
        raise AttributeError(name)

    def forward_batch_generation(self, batch: Any, *_: Any, **__: Any) -> Any:
        batch.seen = batch.input_ids.clone()
        output = SimpleNamespace(next_token_logprobs=None, input_token_logprobs=None, hidden_states=None)
        if batch.named:
            return SimpleNamespace(logits_output=output, next_token_ids=batch.tokens, can_run_cuda_graph=False)
        return output, batch.tokens, False


@dataclass
class _Sampling:
    sampling_info_done: Any = None
    penalizer_orchestrator: Any = None

    def update_penalties(self) -> None:
        pass


class _Client:
    """The worker's client, with its own thread."""

    def __init__(self, proof: Proof, case: Case):
        home = proof.engine[_CLIENT]
        home.TpModelWorker = lambda *_, **__: _Worker(case)
        kind = home.TpModelWorkerClient
        self.client = kind(_launched(case), *[0] * (len(inspect.signature(kind).parameters) - 1))
        # An error of the thread would end the process
        failed = lambda *_: self.client.output_queue.put(None)  # noqa: E731
        self.client.parent_process = SimpleNamespace(send_signal=failed)

    def step(self, ids: Any, tokens: Any) -> tuple[Any, Any]:
        import torch

        batch = SimpleNamespace(
            input_ids=ids.clone(), tokens=tokens, seq_lens=tokens, return_logprob=False, is_prefill_only=False,
            launch_done=None, hicache_consumer_index=0, sampling_info=_Sampling(), named=hasattr(self.client, "future_map"),
        )  # fmt: skip
        returned = self.client.forward_batch_generation(batch)
        parts = vars(returned).values() if hasattr(returned, "__dict__") else returned
        self.client.resolve_last_batch_result()
        return batch.seen, next(one for one in parts if isinstance(one, torch.Tensor))

    def close(self) -> None:
        self.client.input_queue.put((None, None, None))
        self.client.forward_thread.join()


class Proof(Cases):
    modules = (_QUANTIZATION, _RING, _CLIENT, _SCHEDULER, _SPEC)
    may_lack = (_RING, _CLIENT)
    needs = f"{_RING}:FutureMap.alloc_future_indices or {_RING}:FutureMap.update_ct or {_CLIENT}:TpModelWorkerClient"
    absent = "the newest tokens have a slot for each request"
    kernel = "none"
    measure = "relative error of the tokens that decoding requests get back"
    bug = (
        Case((40,)), Case((12, 9, 20, 3), decoding=3), Case((7, 5), running=2, decoding=1),
        Case((100, 28)),  # as many as the cache has room for, each of half a chunk
        Case((40,), drafts=True, where=_DRAFTS),
    )  # fmt: skip
    spared = (Case((2, 1), tokens=64, chunk=64), Case((3,), running=64, tokens=256, chunk=16))
    broken = {
        "the correction does nothing": (wrap.widen, lambda real, ring, wanted, running: None),
        "the ring is as short as parts of one prompt": (wrap.slots, lambda real, running, *rest: 3 * running + 2),
        "all parts are of a whole chunk": (wrap.slots, lambda real, running, tokens, chunk: real(running, tokens // 2, chunk)),
    }

    def prepare(self) -> None:
        ring = self.engine.get(_RING)
        super().prepare()
        for home, name in ((ring, "_resolve_future_token_ids"), (self.engine.get(_CLIENT), "resolve_future_token_ids")):
            if home is not None and hasattr(home, name):
                setattr(home, name, inspect.unwrap(getattr(home, name)))

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        made = lambda count: torch.randint(1, 1 << 20, (count,), generator=draw)  # noqa: E731
        served = (_Client if self.engine.get(_CLIENT) else _Scheduler)(self, case)
        try:
            tokens = made(case.decoding)
            _, waiting = served.step(made(case.decoding), tokens)
            found, wanted = [], []
            for _ in range(2):  # the second time around the ring from elsewhere
                newest, now = [tokens], [waiting]
                for parts in case.prompts:
                    for _ in range(parts):
                        last = made(1)
                        _, stands = served.step(made(1), last)
                    newest.append(last)
                    now.append(stands)
                tokens = made(sum(map(len, newest)))
                got, waiting = served.step(torch.cat(now), tokens)
                found.append(got)
                wanted.append(torch.cat(newest))
                tokens, waiting = tokens[: case.decoding], waiting[: case.decoding]
        finally:
            served.close()
        return observe(torch.cat(found).double(), torch.cat(wanted).double())
