"""A correction that fails on one of two ranks, which then disagree about the collectives to come: nobody may wait for ever."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnfix.compat.arming import serving_failure
from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.fix import SLOWER, CodePath
from attnfix.compat.status import messages
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.catalogue import FIXES

#: Seconds within which a server has to end; ranks that wait for one another do so for minutes
LIMIT = 60


def rank_of(rank: int, store: str, alike: bool, kind: str) -> None:
    """One rank of a server: a step, whose number of collectives the fix decides, and then the next one."""
    import datetime

    import torch
    import torch.distributed as dist

    state = FixState(replace(FIXES[0], ranks_alike=alike), on_event=messages.tell)
    state.armed = True

    def reduced(x, times):
        for _ in range(times):
            dist.all_reduce(x)

    def engine_step(x, run=lambda x: reduced(x, 1)):
        run(x)

    def ours(x, *_):
        if rank:
            raise ValueError("ours")
        reduced(x, 2)

    def correct(call, instance, x):
        if kind == "guard":
            return call(run=call.guard(ours, lambda x: reduced(x, 1)))
        if rank:
            raise ValueError("ours")
        return call(run=ours)

    step = WrappedTarget(engine_step, CodePath("engine", "step")).add(state, correct).function
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(minutes=10))
    batch = torch.ones(1)
    try:
        step(batch)
        if rank:
            dist.recv(batch, 0)  # the next batch
        else:
            dist.send(batch, 1)
        print("served")
    finally:
        print(state.state, state.reason, sep=": ", flush=True)


def ends(*arguments: str) -> list[tuple[int, str]] | None:
    """(exit code, what it said) of either rank; None where they do not end by themselves."""
    command = [sys.executable, "-c", f"from {__name__} import rank_of; rank_of({{}}, {', '.join(map(repr, arguments))})"]
    root = str(Path(__file__).parents[3])
    ranks = [
        subprocess.Popen(
            [part.format(rank) for part in command], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        return None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [(rank.returncode, text) for rank, text in zip(ranks, said)]


@pytest.mark.parametrize("kind", ["correct", "guard"])
def test_the_server_ends_where_its_ranks_disagree(kind, tmp_path):
    found = ends(str(tmp_path / "store"), True, kind)
    assert found is not None, "one rank waits for the other"
    (first, other), (second, said) = found
    assert first and second and "served" not in other + said
    assert said.startswith("failed: ") and "ValueError: ours" in said and "on rank 1 of 2" in said


@pytest.fixture
def two_ranks(monkeypatch):
    monkeypatch.setattr(serving_failure, "_rank", lambda: "rank 1 of 2")


def failing(fix, error):
    state = FixState(fix)
    state.armed = True

    def correct(call, instance):
        raise error

    return state, WrappedTarget(lambda x: 2 * x, CodePath("engine", "double")).add(state, correct).function


def test_other_fixes_serve_on_among_ranks(two_ranks):
    state, run = failing(FIXES[0], ValueError("ours"))
    assert run(4) == 8 and state.state == "failed" and "rank" not in state.reason


def test_on_one_rank_it_is_as_every_other_fix():
    state, run = failing(replace(FIXES[0], ranks_alike=True), ValueError("ours"))
    assert run(4) == 8 and state.state == "failed" and "can be wrong" in state.reason


@pytest.mark.parametrize("error", [ValueError("ours"), MemoryError()], ids=lambda error: type(error).__name__)
def test_no_call_of_one_rank_alone_goes_uncorrected(two_ranks, error):
    """Whatever the engine's own result is, and though memory may be there for the next call."""
    state, run = failing(replace(FIXES[0], ranks_alike=True, harm=SLOWER), error)
    with pytest.raises(type(error)):
        run(4)
    assert state.armed == isinstance(error, MemoryError)


def test_a_process_without_torch_or_a_group_has_no_rank(monkeypatch):
    assert serving_failure._rank() is None
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert serving_failure._rank() is None
