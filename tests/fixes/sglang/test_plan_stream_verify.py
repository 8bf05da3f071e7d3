"""sglang.plan-stream-verify without an engine: a worker that plans beside its drafts, and one that does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.plan_stream_verify.fix import FIX
from tests.support import one_call


class Stream:
    def __init__(self):
        self.waits_for = []

    def wait_stream(self, other):
        self.waits_for.append(other)


def verify(self, batch):
    return batch, self.plan_stream and list(self.plan_stream.waits_for)


@pytest.mark.parametrize("target", FIX.targets)
def test_a_plan_waits_for_the_stream_that_drafts(monkeypatch, target):
    drafting, state = Stream(), FixState(FIX)
    monkeypatch.setattr(torch, "get_device_module", {"npu": SimpleNamespace(current_stream=lambda: drafting)}.__getitem__)
    worker = SimpleNamespace(plan_stream=Stream(), device="npu")
    assert one_call.run(target, verify, state, worker, "batch") == ("batch", [drafting])
    assert state.counters.corrections == 1 and not drafting.waits_for


@pytest.mark.parametrize("target", FIX.targets)
def test_one_stream_is_left_alone(target):
    state = FixState(FIX)
    worker = SimpleNamespace(plan_stream=None, device="cuda")
    assert one_call.run(target, verify, state, worker, "batch") == ("batch", None) and state.counters.corrections == 0
