"""sglang.uniform-replay-stride-triton on real releases: replays by the engine's own CUDA graph runners."""

from __future__ import annotations

from .draft_extend_replays import MULTI_LAYER, ONE_LAYER

V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}

#: The edit that puts the fault back: the runner is not asked for its stride
SABOTAGE = """
fixed, counted = errors(), states()
from attnfix.patches.sglang.shared import uniform_replay
uniform_replay.stride = lambda spec_info, own: own
answer([fixed, counted, errors()])
"""


def test_every_layer_of_multi_layer_eagle_is_replayed_by_its_own_stride(engine_fork):
    """Layer i is captured with `steps + 1 + i` tokens of each request. Stock goes by accept lengths, wrong in all layers."""
    environment = engine_fork("sglang", "0.5.9")
    assert min(environment.evaluate(MULTI_LAYER + "answer(errors())", ATTNFIX="0", **V2)) > 0.05
    fixed, states, broken = environment.evaluate(MULTI_LAYER + SABOTAGE, **V2)
    assert max(fixed) < 0.01 and states["sglang.uniform-replay-stride-triton"] == ["effective", 3]
    assert broken[0] < 0.01 and min(broken[1:]) > 0.05


def test_one_layer_in_the_oldest_affected_release(engine_fork):
    environment = engine_fork("sglang", "0.5.8")
    assert environment.evaluate(ONE_LAYER + "answer(errors())", ATTNFIX="0", **V2)[0] > 0.05
    assert environment.evaluate(ONE_LAYER + "answer(errors())", **V2)[0] < 0.01
