"""sglang.uniform-replay-stride-mla on real releases: replays by the engine's own runner, TRT-LLM's kernel emulated."""

from __future__ import annotations

import pytest

from .draft_extend_replays import MLA

#: A runner with another stride than the backend's is followed. Asked of the correction: no worker of these releases gives
#: the later layers of --enable-multi-layer-eagle this backend (they are FA3's)
OTHER_STRIDE = """
from attnfix.patches.sglang.shared import uniform_replay
from attnfix.patches.sglang.uniform_replay_stride_mla import wrap
told = {"num_tokens_per_req": 6}, {"num_tokens_per_batch": 5}, {"num_tokens_per_req": -1}
answer([error, [wrap._sizes(backend, SimpleNamespace(**one))[0] + 1 for one in told]])
"""


@pytest.mark.parametrize("release", ["0.5.8", "0.5.9"])
def test_a_replay_of_the_engines_runner(engine_fork, release):
    environment = engine_fork("sglang", release)
    assert environment.evaluate(MLA + "answer(errors())", ATTNFIX="0", SGLANG_ENABLE_SPEC_V2="1")[0] > 0.05
    error, strides = environment.evaluate(MLA + "(error,) = errors()" + OTHER_STRIDE, SGLANG_ENABLE_SPEC_V2="1")
    assert error < 0.01
    assert strides == [6, 5, 4]
