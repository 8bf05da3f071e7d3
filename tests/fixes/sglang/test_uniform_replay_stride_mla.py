"""sglang.uniform-replay-stride-mla on real releases: replays by the engine's own CUDA graph runner, TRT-LLM's kernel emulated."""

from __future__ import annotations

import pytest

from .draft_extend_replays import MLA

#: A runner with another stride than the backend's is followed: what --enable-multi-layer-eagle's runner says of a later layer
OTHER_STRIDE = """
from attnfix.patches.sglang import uniform_replay
from attnfix.patches.sglang.uniform_replay_stride_mla import wrap
answer([wrap._sizes(backend, SimpleNamespace(**{name: told}))[0] + 1
        for name, told in (("num_tokens_per_req", 6), ("num_tokens_per_batch", 5), ("num_tokens_per_req", -1))])
"""


@pytest.mark.parametrize("release", ["0.5.8", "0.5.9"])
def test_a_replay_of_the_engines_runner(engine_fork, release):
    environment = engine_fork("sglang", release)
    assert environment.evaluate(MLA + "answer(errors())", ATTNFIX="0", SGLANG_ENABLE_SPEC_V2="1")[0] > 0.05
    assert environment.evaluate(MLA + "answer(errors())", SGLANG_ENABLE_SPEC_V2="1")[0] < 0.01


def test_the_stride_is_the_graph_runners(engine_fork):
    """No worker gives its later layers this backend in the affected releases (they are FA3's): asked of the correction."""
    strides = engine_fork("sglang", "0.5.9").evaluate(MLA + OTHER_STRIDE, SGLANG_ENABLE_SPEC_V2="1")
    assert strides == [6, 5, 4]
