"""vllm.fa2-cascade without an engine: which steps are built without a cascade."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.fa2_cascade import wrap
from attnfix.patches.vllm.fa2_cascade.fix import FIX
from tests.support import one_call

BUILD = one_call.target_of(FIX, "build")
VERSION = [2]


def get_flash_attn_version():
    return VERSION[0]


def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
    return common_prefix_len


@pytest.fixture(autouse=True)
def an_a100(monkeypatch):
    monkeypatch.setattr(wrap, "multiprocessors", lambda device: 108)


def prefix(requests=16, own=600, prefix=512, new=1, heads=(32, 8), size=128, device="cuda", fa=2):
    """(the prefix that the step is built with, corrections)"""
    VERSION[0] = fa
    builder = SimpleNamespace(num_heads_q=heads[0], num_heads_kv=heads[1], headdim=size, device=SimpleNamespace(type=device))
    lens = torch.full((requests + 2,), 9000)  # what stands behind the requests is of former steps
    lens[:requests] = prefix + own
    common = SimpleNamespace(num_reqs=requests, max_query_len=new, seq_lens_cpu=lens)
    state = FixState(FIX)
    return one_call.run(BUILD, build, state, builder, prefix, common_attn_metadata=common), state.counters.corrections


@pytest.mark.parametrize(
    "step", [{}, {"requests": 14}, {"requests": 17, "own": 513}, {"size": 64, "own": 600}, {"heads": (71, 1), "requests": 80}]
)
def test_a_step_whose_keys_are_split_has_no_cascade(step):
    assert prefix(**step) == (0, 1)


@pytest.mark.parametrize(
    "step",
    [
        {"requests": 22}, {"own": 256}, {"size": 64, "own": 512}, {"new": 2}, {"heads": (8, 8)}, {"fa": 3}, {"fa": None},
        {"device": "xpu"}, {"own": 128, "requests": 20},
    ],
)  # fmt: skip
def test_a_step_that_is_right_is_the_engines(step):
    assert prefix(**step) == (512, 0)


def test_without_a_shared_prefix_nothing_is_asked():
    assert prefix(prefix=0) == (0, 0)


@pytest.mark.parametrize("slots", [28, 216, 264])
def test_one_split_is_told_from_several_as_the_kernels_caller_does(slots):
    """By its loop, in float32: what is sure of one split has one."""
    for tiles in range(1, slots + 2):
        for blocks in (0, 1, 2, 3, 4, 5, 7, 12, 33, 200):
            assert wrap.may_split(tiles, slots, blocks) >= (by_loop(tiles, slots, blocks) > 1)
    assert sum(wrap.may_split(t, slots, b) != (by_loop(t, slots, b) > 1) for t in range(1, slots) for b in range(1, 9)) < 3


def by_loop(tiles, slots, blocks):
    f32 = lambda value: torch.tensor(value, dtype=torch.float32)  # noqa: E731
    if tiles >= float(f32(0.8) * slots):
        return 1
    best, fill = 0.0, {}
    for n in range(1, min(128, slots, blocks) + 1):
        if n == 1 or -(-blocks // n) != -(-blocks // (n - 1)):
            waves = float(f32(float(tiles * n)) / slots)
            fill[n] = waves / -(-waves // 1)
            best = max(best, fill[n])
    return next((n for n, value in fill.items() if value >= 0.85 * best), 1)
