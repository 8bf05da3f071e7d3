"""sglang.verify-ranks without an engine: whose decision goes to all ranks, and when each rank keeps its own."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.shared import launch
from attnfix.patches.sglang.verify_ranks import wrap
from attnfix.patches.sglang.verify_ranks.fix import FIX
from tests.support import one_call


class Ranks:
    world_size = 2

    def __init__(self):
        self.sent = []

    def broadcast(self, part, src):
        self.sent.append(part.tolist())
        part.fill_(7)


def engine():
    """A verification that samples, and one that takes the likeliest tokens."""

    def verify(self, batch):
        made = {name: torch.zeros(2, dtype=torch.int32) for name in ("predicts", "accept_index", "accept_token_num")}
        if batch.sampling_info.is_all_greedy:
            verify_tree_greedy(**made)  # noqa: F821
        else:
            tree_speculative_sampling_target_only(**made)  # noqa: F821
        return [part.tolist() for part in made.values()]

    def kernel(predicts, accept_index, accept_token_num):
        predicts.fill_(1)

    names = {"verify_tree_greedy": kernel, "tree_speculative_sampling_target_only": kernel}
    return type(verify)(verify.__code__, {**globals(), **names}, "verify")


def run(monkeypatch, greedy, amd, ranks=2, machines=1, idle=False):
    """What the caller gets, how many corrections were counted, and what went to all ranks."""
    group = Ranks()
    group.world_size = ranks
    for name, values in {
        wrap._ATTENTION: {"is_dp_attention_enabled": lambda: False},
        wrap._GROUPS: {"get_tp_group": lambda: group},
    }.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.version, "hip", "6.4" if amd else None)
    monkeypatch.setattr(launch, "server_args", lambda: SimpleNamespace(nnodes=machines))
    state = FixState(FIX)
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_idle=lambda: idle), sampling_info=SimpleNamespace(is_all_greedy=greedy)
    )
    result = one_call.run(one_call.target_of(FIX, "verify"), engine(), state, None, batch)
    return result, state.counters.corrections, group.sent


@pytest.mark.parametrize("greedy, amd", [(False, False), (True, True), (False, True)])
def test_the_first_ranks_decision_goes_to_all(monkeypatch, greedy, amd):
    assert run(monkeypatch, greedy, amd) == ([[7, 7]] * 3, 1, [[1, 1], [0, 0], [0, 0]])


@pytest.mark.parametrize(
    "how",
    [
        {"greedy": True, "amd": False},
        {"greedy": False, "amd": False, "ranks": 1},
        {"greedy": True, "amd": True, "machines": 2},
        {"greedy": True, "amd": True, "idle": True},
    ],
)
def test_else_each_rank_keeps_its_own(monkeypatch, how):
    result, corrections, sent = run(monkeypatch, **how)
    assert (result[0], corrections, sent) == ([1, 1], 0, [])


def code(*names, of=()):
    """A function that reads `names`, on a machine with kernels `of` these names."""
    return SimpleNamespace(__code__=SimpleNamespace(co_names=names), __globals__=dict.fromkeys(of or names))


def test_code_that_shares_what_was_sampled_is_left_alone():
    (sampling,), greedy = wrap._SAMPLING, wrap._GREEDY[1]
    assert wrap.undecided(code(sampling, "broadcast"), amd=False, greedy=False) == []
    assert wrap.undecided(code(sampling, greedy, "broadcast"), amd=True, greedy=False) == [greedy]


def test_a_machine_without_a_kernel_has_no_decision_of_it():
    (sampling,), greedy = wrap._SAMPLING, wrap._GREEDY[0]
    assert wrap.undecided(code(sampling, greedy, of=(greedy,)), amd=True, greedy=False) == [greedy]
    assert wrap.undecided(code(sampling, greedy, of=(greedy,)), amd=False, greedy=False) == []


def test_under_dp_attention_the_ranks_are_those_of_attention(monkeypatch):
    for name, values in {
        wrap._ATTENTION: {"is_dp_attention_enabled": lambda: True},
        wrap._GROUPS: {"get_tp_group": lambda: "all", "get_attn_tp_group": lambda: "those of attention"},
    }.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    assert wrap.group() == "those of attention"
    sys.modules[wrap._ATTENTION].get_attention_tp_group = lambda: "its own"
    assert wrap.group() == "its own"
