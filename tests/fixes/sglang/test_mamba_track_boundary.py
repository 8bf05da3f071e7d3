"""sglang.mamba-track-boundary without an engine: which steps are looked at anew, and what the engine then says."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_track_boundary.fix import FIX
from tests.support import one_call

INTERVAL = 32
(TARGET,) = FIX.targets


class Results:
    """What the engine does with a length, and with drafts."""

    def _mamba_check_track_boundary(self, req, batch, result, i):
        if batch.spec_algorithm.is_none() and req.kv_committed_len % 32 == 0:
            return True, req.kv_committed_len
        return False, 0


ENGINE = FunctionType(Results._mamba_check_track_boundary.__code__, {"__builtins__": __builtins__})


class Request(SimpleNamespace):
    @property
    def seqlen(self):
        return len(self.origin_input_ids) + len(self.output_ids)


def said(done, ahead, *, last=None, lazy=False, drafts=False, overlap=True):
    """(what the caller gets after the step that made `done` tokens, how often it was corrected)"""
    request = Request(
        origin_input_ids=[0] * (done - 4), output_ids=[0] * 5, kv_committed_len=done + ahead, mamba_last_track_seqlen=last
    )
    batch = SimpleNamespace(
        spec_algorithm=SimpleNamespace(is_none=lambda: not drafts),
        req_to_token_pool=SimpleNamespace(enable_mamba_extra_buffer_lazy=lazy),
    )
    results = SimpleNamespace(enable_overlap=overlap, server_args=SimpleNamespace(mamba_track_interval=INTERVAL))
    state = FixState(FIX)
    return one_call.run(TARGET, ENGINE, state, results, request, batch, None, 0), state.counters.corrections


@pytest.mark.parametrize("last", [None, 32, 64])
def test_the_step_that_is_processed_decides(last):
    assert said(63, 1, last=last) == ((False, 0), 1), "the next step will write a state, this one has not"
    assert said(64, 1, last=last) == ((True, 64), 1)
    assert said(64, 0, last=last) == ((True, 64), 0)
    assert said(65, 1, last=last) == said(63, 0, last=last) == ((False, 0), 0)


def test_a_slot_that_is_made_as_a_step_is_prepared_belongs_to_that_step():
    assert said(63, 1, lazy=True, last=32) == ((True, 64), 0)
    assert said(64, 1, lazy=True, last=64) == ((False, 0), 0), "it was claimed a step before"
    assert said(64, 1, lazy=True, last=32) == said(64, 1, lazy=True) == ((True, 64), 1), "nothing has claimed it"
    assert said(64, 0, lazy=True, last=32) == ((True, 64), 0)


@pytest.mark.parametrize("done, ahead", [(63, 1), (64, 1), (64, 0), (64, 2), (62, 2), (64, -1)])
@pytest.mark.parametrize("other", [{"drafts": True}, {"overlap": False}])
def test_the_rest_is_the_engine_s(done, ahead, other):
    assert said(done, ahead, **other)[1] == 0


@pytest.mark.parametrize("ahead", [2, -1])
def test_a_distance_that_no_release_has_is_left_alone(ahead):
    assert said(64 - ahead, ahead) == ((True, 64), 0)
