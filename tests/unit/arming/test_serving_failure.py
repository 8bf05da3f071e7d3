"""A correction that fails while the engine serves: what the call returns, what the operator sees, whether the process lives."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from dataclasses import replace

import pytest
import torch

from attnfix.cli import status
from attnfix.compat.arming import serving_failure
from attnfix.compat.arming.activation import Activation
from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.fix import CRASH, SLOWER, WRONG_OUTPUT, CodePath
from attnfix.compat.status import messages, metrics, process_record
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.catalogue import FIXES

NO_MEMORY = [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("[enforce] DefaultCPUAllocator: no")]
TOLD_BY_OTHERS = (
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    "Triton Error [CUDA]: out of memory",
    "HIP error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuLibraryLoadData: CUDA_ERROR_OUT_OF_MEMORY",
)
HARMS = (WRONG_OUTPUT, CRASH, SLOWER)


class Call:
    """One target with one correction that raises `error`, before it has called the engine or after."""

    def __init__(self, fix, error, after):
        self.engine_ran = 0
        self.error, self.after = error, after
        self.state = FixState(fix, on_event=messages.tell)
        self.state.armed = True
        self.wrapper = WrappedTarget(self._engine(), CodePath("engine", "double")).add(self.state, self._failing())

    def _engine(self):
        def double(x):
            self.engine_ran += 1
            return 2 * x

        return double

    def _failing(self):
        def failing(call, instance):
            if self.after:
                call()
            raise self.error

        return failing

    def __call__(self, x=4):
        return self.wrapper.function(x)


def ended(step):
    """(exit code, standard error) of a forked child that runs `step` and then ends with 0."""
    read, write = os.pipe()
    if not (pid := os.fork()):
        sys.stderr = os.fdopen(write, "w")
        try:
            step()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


@pytest.fixture(params=[False, True], ids=["before the engine", "after it"])
def after(request):
    return request.param


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_want_of_memory_disarms_nothing_and_serves_no_wrong_answer(fix, error, after):
    call = Call(fix, error, after)
    if fix.harm == SLOWER:
        assert call() == 8 and call.engine_ran == 1
    else:
        with pytest.raises(type(error)) as raised:
            call()
        assert raised.value is error and call.engine_ran == after
    assert call.state.armed and call.state.base != "failed"


@pytest.mark.parametrize("said", TOLD_BY_OTHERS)
def test_want_of_memory_in_the_words_of_others(said):
    assert serving_failure.is_allocation_failure(RuntimeError(said))
    assert not serving_failure.is_allocation_failure(RuntimeError("out of resource: shared memory, Required: 1, limit: 0"))
    assert not serving_failure.is_allocation_failure(ValueError(said))


@pytest.mark.parametrize("switch", [{"ATTNFIX_STRICT": "1"}, {FIXES[0].switch: "1"}, {}])
def test_a_required_fix_that_the_first_call_finds_in_conflict_ends_the_process(monkeypatch, switch):
    for name, value in switch.items():
        monkeypatch.setenv(name, value)
    call = Call(FIXES[0], ValueError("not reached"), False)
    call.state.recheck_on_first_call = lambda: call.state.settle("conflict", "run was replaced by theirs")
    code, said = ended(call)
    assert (code, said.count("\n")) == ((78, 1) if switch else (0, 0)) and ("by theirs" in said) == bool(switch)


@pytest.mark.parametrize("required", [True, False])
def test_where_the_check_at_the_first_call_fails_nothing_is_corrected(monkeypatch, required):
    if required:
        monkeypatch.setenv("ATTNFIX_STRICT", "1")
    call = Call(FIXES[0], ValueError("not reached"), False)
    call.state.recheck_on_first_call = lambda: 1 / 0
    told = "the check at the first call raised ZeroDivisionError"
    if required:
        code, said = ended(call)
        assert code == 78 and told in said
    else:
        assert call() == 8 and call.state.state == "failed" and told in call.state.reason


def test_a_first_call_in_another_thread_waits_for_the_check():
    call, checking, go_on = Call(FIXES[0], ValueError("corrected"), False), threading.Event(), threading.Event()

    def recheck_on_first_call():
        checking.set()
        go_on.wait(5)
        call.state.settle("conflict", "run was replaced by theirs")

    call.state.recheck_on_first_call = recheck_on_first_call
    results = []
    threads = [threading.Thread(target=lambda: results.append(call())) for _ in range(2)]
    threads[0].start()
    assert checking.wait(5)
    threads[1].start()
    threads[1].join(0.1)
    go_on.set()
    for thread in threads:
        thread.join(5)
    assert results == [8, 8] and call.state.state == "conflict"


def test_the_call_after_it_is_corrected():
    call = Call(FIXES[0], NO_MEMORY[0], False)
    with pytest.raises(torch.OutOfMemoryError):
        call()
    call.wrapper.remove(call.state)
    call.wrapper.add(call.state, lambda call, instance: call() + 100)
    assert call() == 108


def test_a_skipped_call_is_said_once(caplog):
    call = Call(next(fix for fix in FIXES if fix.harm == SLOWER), NO_MEMORY[0], False)
    call(), call()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert call.state.fix.id in line and "out of memory" in line


@pytest.mark.parametrize("harm", HARMS)
def test_any_other_error_disarms_and_says_what_that_means(harm, after, caplog):
    call = Call(replace(FIXES[0], harm=harm), ValueError("ours"), after)
    assert (call(), call(), call.engine_ran) == (8, 8, 2)
    assert not call.state.armed and call.state.state == "failed"
    expected = {WRONG_OUTPUT: "can be wrong", CRASH: "can crash", SLOWER: "stay right"}[harm]
    assert "ours" in call.state.reason and expected in call.state.reason
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert expected in line


@pytest.mark.parametrize("error", [ValueError("ours"), *NO_MEMORY], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("variable", ["ATTNFIX_STRICT", "its switch"])
def test_a_required_fix_ends_the_process_with_one_line(variable, harm, error, after, monkeypatch):
    fix = replace(FIXES[0], harm=harm)
    monkeypatch.setenv(fix.switch if variable == "its switch" else variable, "1")
    code, said = ended(Call(fix, error, after))
    assert code == messages.EXIT_STRICT
    (line,) = said.splitlines()
    assert line.startswith("attnfix: ") and fix.id in line and type(error).__name__ in line


def test_the_engines_own_want_of_memory_is_its_own_even_where_the_fix_is_required(monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    state = FixState(FIXES[0])
    state.armed = True

    def engine(x):
        raise NO_MEMORY[0]

    wrapper = WrappedTarget(engine, CodePath("engine", "engine")).add(state, lambda call, instance: call())
    with pytest.raises(torch.OutOfMemoryError):
        wrapper.function(1)
    assert state.armed


def test_a_correction_that_gives_up_has_the_result_it_returns():
    state = FixState(FIXES[0])
    state.armed = True

    def makes_sure(call, instance):
        result = call()
        call.target.give_up("no room")
        return result

    wrapper = WrappedTarget(lambda x: 2 * x, CodePath("engine", "double")).add(state, makes_sure)
    assert wrapper.function(4) == 8 and state.state == "failed" and "no room" in state.reason


def test_a_required_fix_that_gives_up_ends_the_process(monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    state = FixState(FIXES[0])
    state.armed = True
    assert ended(lambda: serving_failure.give_up(state, "no room"))[0] == messages.EXIT_STRICT


def test_errors_that_are_no_want_of_memory():
    class Silent(Exception):
        def __str__(self):
            raise ValueError

    assert not any(map(serving_failure.is_allocation_failure, (ValueError("CUDA out of memory"), RuntimeError("x"), Silent())))


def test_status_metrics_and_exit_code_say_it_at_once(engine):
    """Through the record, as another process sees it."""
    fix = engine.one_target("broken_after")
    activation = Activation([fix], facts=lambda: {"server": metrics.server()})
    engine.load(activation, "attention")
    backend = importlib.import_module("sglang.attention").Backend()
    assert [row["state"] for record in process_record.read_all() for row in record["fixes"]] == ["installed"]
    assert backend.forward(2) == 4

    (process,) = process_record.read_all()
    (row,) = process["fixes"]
    assert row["state"] == "failed" and "can be wrong" in row["reason"]
    plain = {"active": True, "reason": None, "refused": None, "engines": [], "unrecorded": [], "processes": [process]}
    (missing,) = status.missing(plain)
    assert fix.id in missing and "failed" in missing
    infos = [sample.labels for family in metrics.families() for sample in family.samples if family.name == "attnfix_fix"]
    assert [(labels["fix"], labels["state"]) for labels in infos] == [(fix.id, "failed")]
