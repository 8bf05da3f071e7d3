"""vllm.window-blocks-not-zeroed without an engine: which blocks are cleared, in which pools."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.shared import cleared_blocks
from attnfix.patches.vllm.window_blocks_not_zeroed.fix import FIX
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

    def __init__(self, *kinds, stride=0, clears=True):
        specs = [type(kind, (), dict(block_size=size, num_kv_heads=1, head_size=64, **own)) for kind, size, own in kinds]
        groups = [SimpleNamespace(kv_cache_spec=each()) for each in specs]
        self.attn_groups = [
            [SimpleNamespace(kv_cache_spec=one.kv_cache_spec, kv_cache_group_id=at, layer_names=[])]
            for at, one in enumerate(groups)
        ]
        self.kv_cache_config = SimpleNamespace(
            num_blocks=8, kv_cache_groups=groups, kv_cache_tensors=[SimpleNamespace(block_stride=stride)],
            needs_kv_cache_zeroing=clears,
        )  # fmt: skip

    def _update_states(self, scheduler_output):
        return "updated"


STATES = ("MambaSpec", 256, dict(dtypes=(BF16, "float32")))
FULL, WINDOW = ("FullAttentionSpec", 32, dict(dtype=FP8)), ("SlidingWindowSpec", 16, dict(dtype=FP8))
POOL = STATES, FULL, WINDOW


BEGINS = step([(([9], [1, 2, 3], [4, 5, 6]), 0)])


def run(runner, given, state=None):
    """The blocks that were cleared, and how many corrections were counted."""
    state = state or FixState(FIX)
    assert one_call.run(one_call.target_of(FIX, "_update_states"), Runner._update_states, state, runner, given) == "updated"
    zeroer = cleared_blocks._zeroers.get(runner, (None, None))[1]
    return zeroer.blocks if zeroer else None, state.counters.corrections


@pytest.mark.parametrize(
    "given, blocks",
    [
        (BEGINS, [4, 5, 6]),
        (step([(([9], [1, 2], [4, 5, 6]), 16)]), [5, 6]),  # a cached prefix
        (step([(([9], [1, 2], [4, 5, 6]), 17)]), [6]),  # a block that is filled in part
        (step(a=(([], [], [7]), 64, False)), [7]),  # a decode
        (step(a=(([], [7], []), 64, False)), None),
        (step(a=(([9], [1, 2], [4, 5, 6]), 32, True)), [6]),  # resumed behind a cached prefix
        (step(a=(None, 64, False)), None),
        (step(), None),
    ],
)
def test_blocks_of_windows_that_hold_no_token_are_cleared(given, blocks):
    assert run(Runner(*POOL), given) == (blocks, int(blocks is not None))


def test_layers_of_several_precisions_without_states():
    full = ("FullAttentionSpec", 16, dict(dtype=BF16))
    assert run(Runner(full, WINDOW), step([(([1, 2], [4, 5]), 0)])) == ([4, 5], 1)
    assert run(Runner(full, WINDOW, clears=False), step([(([1, 2], [4, 5]), 0)])) == (None, 0)  # up to 0.26.0


@pytest.mark.parametrize(
    "kinds",
    [
        [STATES, FULL],
        [("MambaSpec", 256, dict(dtypes=(FP8, FP8))), FULL, WINDOW],
        [STATES, FULL, ("CrossAttentionSpec", 16, dict(dtype=FP8))],
        [STATES, FULL, ("UniformTypeKVCacheSpecs", 32, {})],
    ],
)
def test_other_pools_are_left(kinds):
    assert run(Runner(*kinds), BEGINS) == (None, 0)


def test_the_cpu_is_left(engine):
    engine.is_cpu = lambda: True
    assert run(Runner(*POOL), BEGINS) == (None, 0)


def test_pages_of_several_sizes_are_left(monkeypatch):
    monkeypatch.setattr(Zeroer, "uneven", True)
    state = FixState(FIX)
    assert run(Runner(*POOL), BEGINS, state) == (None, 0)
    assert run(Runner(*POOL, stride=64), BEGINS, state) == (None, 0)
