"""vllm.mixed-precision-stale-bits without an engine: which blocks are cleared, in which pools."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mixed_precision_stale_bits.fix import FIX
from attnfix.patches.vllm.shared import cleared_blocks
from tests.support import one_call
from tests.support.block_zeroer import Zeroer, stand_in, step

BF16, FP8 = "bfloat16", "uint8"


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    return stand_in(monkeypatch)


class Runner:
    device = None
    cache_config = SimpleNamespace(cache_dtype="fp8")
    compilation_config = SimpleNamespace(static_forward_context={})
    vllm_config = SimpleNamespace()

    def __init__(self, *kinds, stride=0):
        specs = [
            type(kind, (), dict(dtype=dtype, block_size=size, num_kv_heads=1, head_size=64))() for kind, dtype, size in kinds
        ]
        groups = [SimpleNamespace(kv_cache_spec=each) for each in specs]
        self.attn_groups = [
            [SimpleNamespace(kv_cache_spec=each, kv_cache_group_id=at, layer_names=[])] for at, each in enumerate(specs)
        ]
        self.kv_cache_config = SimpleNamespace(
            num_blocks=8, kv_cache_groups=groups, kv_cache_tensors=[SimpleNamespace(block_stride=stride)]
        )

    def update_requests(self, scheduler_output):
        return "updated"


FULL, WINDOW = ("FullAttentionSpec", FP8, 32), ("SlidingWindowSpec", BF16, 16)


BEGINS = step([(([1, 2, 3], [4, 5, 6]), 0)])


def run(runner, given, state=None):
    """The blocks that were cleared, and how many corrections were counted."""
    state = state or FixState(FIX)
    assert one_call.run(one_call.target_of(FIX, "update_requests"), Runner.update_requests, state, runner, given) == "updated"
    zeroer = cleared_blocks._zeroers.get(runner, (None, None))[1]
    return zeroer.blocks if zeroer else None, state.counters.corrections


@pytest.mark.parametrize(
    "given, blocks",
    [
        (BEGINS, [1, 2, 3, 4, 5, 6]),
        (step([(([1, 2, 3], [4, 5, 6]), 32)]), [2, 3, 6]),  # a cached prefix
        (step([(([1, 2, 3], [4, 5, 6]), 33)]), [3]),  # a block that is filled in part
        (step(a=(([7], []), 64, False)), [7]),  # a decode
        (step(a=(([1, 2, 3], [4, 5, 6]), 32, True)), [2, 3, 6]),  # resumed behind a cached prefix
        (step(a=(None, 64, False)), None),
        (step(), None),
    ],
)
def test_blocks_that_hold_no_token_are_cleared(given, blocks):
    assert run(Runner(FULL, WINDOW), given) == (blocks, int(blocks is not None))


@pytest.mark.parametrize(
    "kinds",
    [
        [FULL],
        [FULL, ("SlidingWindowSpec", FP8, 32)],
        [FULL, WINDOW, ("MambaSpec", BF16, 16)],
        [FULL, WINDOW, ("CrossAttentionSpec", BF16, 16)],
        [("UniformTypeKVCacheSpecs", FP8, 32), WINDOW],
    ],
)
def test_other_pools_are_left(kinds):
    assert run(Runner(*kinds), BEGINS) == (None, 0)


def test_the_cpu_is_left(engine):
    engine.is_cpu = lambda: True
    assert run(Runner(FULL, WINDOW), BEGINS) == (None, 0)


@pytest.mark.parametrize("config, blocks", [(object(), None), (None, [1, 2, 3, 4, 5, 6])])
def test_a_connector_of_model_runner_v2_may_copy_blocks_later(monkeypatch, config, blocks):
    monkeypatch.setattr(Runner, "__module__", "vllm.v1.worker.gpu.model_runner")
    monkeypatch.setattr(Runner, "vllm_config", SimpleNamespace(kv_transfer_config=config))
    assert run(Runner(FULL, WINDOW), BEGINS) == (blocks, int(blocks is not None))


def test_pages_of_several_sizes_are_left(monkeypatch):
    monkeypatch.setattr(Zeroer, "uneven", True)
    state = FixState(FIX)
    assert run(Runner(FULL, WINDOW), BEGINS, state) == (None, 0)
    assert run(Runner(FULL, WINDOW, stride=64), BEGINS, state) == (None, 0)


def test_a_cache_that_is_made_anew_gets_its_own_zeroer():
    runner = Runner(FULL, WINDOW)
    run(runner, BEGINS)
    runner.kv_cache_config = SimpleNamespace(**vars(runner.kv_cache_config))
    assert run(runner, step(a=(([7], []), 64, False))) == ([7], 1)


def test_layers_with_a_window_are_among_those_that_are_cleared():
    runner = Runner(FULL, WINDOW)
    run(runner, BEGINS)
    zeroer = cleared_blocks._zeroers[runner][1]
    assert zeroer.kinds == [SimpleNamespace] * 2 and zeroer.sizes == [32, 16]
