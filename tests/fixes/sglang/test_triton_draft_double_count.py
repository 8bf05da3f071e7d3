"""sglang.triton-draft-double-count on real releases: replays by the engine's own CUDA graph runners, spec v2 by default."""

from __future__ import annotations

from .draft_extend_replays import MULTI_LAYER, ONE_LAYER

#: The edit that puts the fault back: later layers keep the first one's layout of the queries
SABOTAGE = """
fixed, counted = errors(), states()
from attnfix.patches.sglang.triton_draft_double_count import wrap
wrap.lay_out = lambda *_: None
answer([fixed, counted, errors()])
"""


def test_every_layer_of_multi_layer_eagle_attends_to_its_own_tokens_once(engine_fork):
    """These releases let that worker have Triton backends, and lay out every layer as the first."""
    environment = engine_fork("sglang", "0.5.12.post1")
    assert min(environment.evaluate(MULTI_LAYER + "answer(errors())", ATTNFIX="0")) > 0.05
    fixed, states, broken = environment.evaluate(MULTI_LAYER + SABOTAGE)
    assert max(fixed) < 0.01 and states["sglang.triton-draft-double-count"] == ["effective", 3]
    assert broken[0] < 0.01 and min(broken[1:]) > 0.05


def test_one_layer(engine_fork):
    environment = engine_fork("sglang", "0.5.11")
    assert environment.evaluate(ONE_LAYER + "answer(errors())", ATTNFIX="0")[0] > 0.05
    assert environment.evaluate(ONE_LAYER + "answer(errors())")[0] < 0.01
