"""Proof of sglang.plan-stream-verify: what verification is prepared from while drafts are still computed.

Real: the workers' `verify`. Played: the streams, the copy of draft tokens into a graph's buffer, and the target's forward. The
drafting stream is as slow as it may be: its work runs where somebody waits for it. Spared: a worker with one stream.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    speculation,
)

from .wrap import wait

_SPECULATIVE = "sglang.srt.speculative"
_ONE, _SEVERAL = f"{_SPECULATIVE}.eagle_worker_v2", f"{_SPECULATIVE}.multi_layer_eagle_worker_v2"
_COMMON = f"{_SPECULATIVE}.eagle_worker_common"


class Case(NamedTuple):
    requests: int
    drafts: int = 4
    #: The worker of several draft layers
    several: bool = False
    apart: bool = True
    #: The place of a case that some releases do not have
    where: str = ""


_LAYERED = f"{_SEVERAL}:MultiLayerEagleWorkerV2.verify"


class Proof(Cases):
    modules = (_ONE, _SEVERAL, _COMMON)
    may_lack = modules
    needs = f"{_ONE}:EAGLEWorkerV2.verify: plan_stream"
    absent = "no stream of its own prepares verification"
    kernel = "none"
    measure = "share of draft tokens that verification was not prepared with"
    bug = (Case(1), Case(3, drafts=2), Case(2, several=True, where=_LAYERED))
    spared = (Case(2, apart=False), Case(2, several=True, apart=False, where=_LAYERED))
    broken = {
        "the correction does nothing": (wait, lambda real, planning, drafting: None),
        "the drafts wait for the plan": (wait, lambda real, planning, drafting: real(drafting, planning)),
    }

    def __init__(self) -> None:
        speculation.choose_in_torch()
        super().__init__()

    def prepare(self) -> None:
        super().prepare()
        if self._has(f"{_ONE}:EAGLEWorkerV2.verify: _draft_done_event"):
            raise NoSuchPath("an event behind the drafts is waited for")

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        right = torch.randint(1, 1000, (case.requests * case.drafts,), generator=torch.Generator().manual_seed(seed))
        tokens, buffer = torch.zeros_like(right), torch.zeros_like(right)
        drafting, planning = _Stream(), _Stream(instant=True)
        streams = _Streams(drafting)
        module = self.engine[_SEVERAL if case.several else _ONE]
        worker = object.__new__(module.MultiLayerEagleWorkerV2 if case.several else module.EAGLEWorkerV2)

        def prepared(*_: Any, **__: Any) -> tuple[Any, bool]:
            streams.current.launch(lambda: buffer.copy_(tokens))
            return SimpleNamespace(mark_forward_metadata_ready=lambda: None), True

        def forward(*_: Any, **__: Any) -> Any:
            streams.current.launch(lambda: seen.append(buffer.clone()))
            streams.current.finish()
            raise _Verified

        seen: list[Any] = []
        backend = SimpleNamespace(update_verify_buffers_to_fill_after_draft=lambda *_: None)
        graphs = SimpleNamespace(bs=case.requests)
        runner = SimpleNamespace(attn_backend=backend, graph_runner=graphs, decode_cuda_graph_runner=graphs)
        target = SimpleNamespace(model_runner=runner, forward_batch_generation=forward)
        vars(worker).update(
            device="cpu", req_to_token_pool=None, token_to_kv_pool_allocator=None, _target_worker=target, topk=1,
            speculative_num_steps=case.drafts - 1, speculative_num_draft_tokens=case.drafts, server_args=SimpleNamespace(),
            plan_stream=planning if case.apart else None,
            plan_stream_ctx=streams.on(planning) if case.apart else contextlib.nullcontext(),
        )  # fmt: skip
        if not hasattr(type(worker), "target_worker"):
            worker.target_worker = target
        drafts = SimpleNamespace(prepare_for_v2_verify=prepared, draft_token=tokens)
        batch = SimpleNamespace(
            seq_lens=_Lengths(case.requests), spec_info=drafts, has_grammar=False, input_ids=None, out_cache_loc=None,
            req_pool_indices=None, forward_mode=SimpleNamespace(is_idle=lambda: False),
        )  # fmt: skip
        drafting.launch(lambda: tokens.copy_(right))
        with streams.installed(), self._preparing(prepared), contextlib.suppress(_Verified):
            worker.verify(batch, *([None] * (_arguments(worker.verify) - 1)))
        missed = float((seen[0] != right).double().mean())
        return Observation(missed, str((missed, seen[0].tolist())))

    @contextlib.contextmanager
    def _preparing(self, prepared: Callable[..., Any]) -> Iterator[None]:
        """Later releases prepare by a function, and not by a method of the drafts."""
        with contextlib.ExitStack() as stack:
            for module in (self.engine.get(name) for name in self.modules):
                for name in ("eagle_prepare_for_verify",) if module else ():
                    if hasattr(module, name):
                        stack.enter_context(replaced(module, name, prepared))
            yield


def _arguments(function: Any) -> int:
    """How many arguments a method wants: up to 0.5.5.post2, lengths stand beside the batch."""
    return sum(one.default is one.empty for one in inspect.signature(function).parameters.values())


class _Verified(Exception):
    """The target's forward has begun."""


class _Lengths:
    """Of a batch's requests; some releases tell the allocator of them."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def record_stream(self, _: Any) -> None:
        pass


class _Stream:
    """Runs what is launched when somebody waits for it, or at once."""

    def __init__(self, instant: bool = False):
        self.instant, self.waiting = instant, list[Callable[[], Any]]()

    def launch(self, work: Callable[[], Any]) -> None:
        self.waiting.append(work)
        if self.instant:
            self.finish()

    def finish(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def wait_stream(self, other: _Stream) -> None:
        other.finish()


class _Streams:
    """The part of `torch.cuda` that tells of streams."""

    def __init__(self, current: _Stream):
        self.current = current

    def current_stream(self, *_: Any) -> _Stream:
        return self.current

    @contextlib.contextmanager
    def _on(self, stream: _Stream) -> Iterator[None]:
        with replaced(self, "current", stream):
            yield

    def on(self, stream: _Stream) -> Any:
        return self._on(stream)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        import torch

        with replaced(torch, "get_device_module", lambda *_: self), replaced(torch.cuda, "current_stream", self.current_stream):
            yield
