"""Proof of sglang.mixed-chunk-states: prompts that are computed beside requests that decode, and their next turns.

A turn's first state is compared with the tokens that it continues. Real and played parts: `lab.sglang.tracked_states`.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.tracked_states import INTERVAL

from . import wrap


class Case(NamedTuple):
    """Prompts come at the same time, beside `decoding` others, a second batch of them right after it.

    prompts: of each, so many chunks of the model's kernel and so many tokens more; page: tokens of a page; mixed: whether they
    share a batch with requests that decode.
    """

    prompts: tuple[tuple[int, int], ...]
    decoding: int = 2
    page: int = 1
    overlap: bool = True
    lazy: bool = False
    mixed: bool = True
    where: str = ""


_LONG, _SHORT = ((1, 3), (3, 0), (2, -1)), ((1, -1), (0, 5))
_POOL = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"
_LAZY = f"{_POOL}.__init__: enable_mamba_extra_buffer_lazy"
_CLAIMED = f"{_POOL}.get_mamba_ping_pong_keep_idx: mamba_last_track_idx"
_ON_HOST = "mamba_prefill_track_mask_cpu"  # of 0.5.21 and later


def _shifted(real, field, more, value):
    kept = real(field, more, value)
    return kept.roll(1) if hasattr(kept, "roll") and value is not False else kept


def _unmasked(real, field, more, value):
    if value is False and field is not None:
        field = [False] * len(field) if isinstance(field, list) else field & False
    return real(field, more, value)


def _behind_others(real, field, more, value):
    return [value] * more + field if isinstance(field, list) else real(field, more, value)


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", "sglang.srt.managers.schedule_batch", "sglang.srt.mem_cache.memory_pool")
    kernel = "none"
    measure = "share of next turns that continue from a state of other tokens"
    needs = "sglang.srt.managers.schedule_batch:ScheduleBatch.prepare_for_extend: mamba_track_mask"
    absent = "prompts keep no states in buffers of their own"
    bug = (
        Case(_LONG), Case(_LONG, overlap=False), Case(_LONG, page=16),
        Case(((2, 0), (0, 7)), decoding=5, page=8, overlap=False),
        Case(((1, 3), (2, 1)), lazy=True, where=_LAZY), Case(_LONG, lazy=True, where=_CLAIMED),
    )  # fmt: skip
    spared = (
        Case(_LONG, mixed=False), Case(_LONG, mixed=False, overlap=False, page=16), Case(_SHORT),
        Case(_SHORT, overlap=False, page=16),
    )  # fmt: skip
    around = {"Leave `--enable-mixed-chunk` out": {"bug": tuple(case._replace(mixed=False) for case in bug)}}
    broken = {
        "the correction does nothing": (wrap.behind, lambda real, field, more, value: None),
        "no state is kept": (wrap.behind, _unmasked),
        "states go to other requests' slots": (wrap.behind, _shifted),
        "what the host knows of the states is that of other requests": (wrap.behind, _behind_others),
    }
    broken_where = {tuple(broken)[-1]: f"{needs.partition(':')[0]}:ScheduleBatch.prepare_for_extend: {_ON_HOST}"}

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        served = tracked_states.serve("--page-size", str(case.page))
        with tracked_states.lazily(served) if case.lazy else nullcontext():
            return self._play(case, served, text)

    def _play(self, case: Case, served: Any, text: Any) -> Observation:
        server = tracked_states.Server(served, case.overlap, case.lazy, case.mixed)
        for _ in range(case.decoding):
            server.arrive(text(INTERVAL + 2), text(12))
        server.step()
        begun = len(server.texts)
        for _ in range(2):
            for chunks, more in case.prompts:
                server.arrive(text(chunks * server.chunk + more), text(2))
            server.step()
        while server.step():
            pass
        for said in list(server.texts.values())[begun:]:
            server.arrive(said + text(3), text(2))
        while server.step():
            pass
        told = server.continued
        return Observation(sum(not right for _, right in told) / max(len(told), 1), repr(told))
