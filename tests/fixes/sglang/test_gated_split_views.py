"""sglang.gated-split-views without an engine: gates that are views, and gates that are not."""

from __future__ import annotations

import pytest
import torch

from attnfix.compat.doctor.condition import OFF, ON
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.gated_split_views.facts import FACTS
from attnfix.patches.sglang.gated_split_views.fix import FIX
from tests.support import one_call

BOTH = torch.arange(24.0).view(4, 6)


def gates(A_log, a, b, dt_bias):
    return a, b


def steps(A_log, a, dt_bias, softplus_beta, b):
    return a, b


@pytest.mark.parametrize("name, engines", [("fused_gdn_gating", gates), ("fused_sigmoid_gating_delta_rule_update", steps)])
@pytest.mark.parametrize(
    "a, b, apart",
    [(BOTH[:, 3:], BOTH[:, :3], "ab"), (BOTH[:, 3:].clone(), BOTH[:, :3], "b"), (BOTH[:, 3:], BOTH[:, :3].clone(), "a"),
     (BOTH.view(4, 3, 2)[..., 1], BOTH[:, :3].clone(), "a"), (BOTH[:, 3:].clone(), BOTH[:, :3].clone(), ""),
     (BOTH[:1, 3:], BOTH[:1, :3], ""), (BOTH[:0, 3:], BOTH[:0, :3], "")],
)  # fmt: skip
def test_views_become_copies(name, engines, a, b, apart):
    """The kernel of steps gets the stride of b: as Kimi-Linear's decode hands it on, a view of it stays."""
    state = FixState(FIX)
    given = {"A_log": None, "a": a, "b": b, "dt_bias": None} | ({"softplus_beta": 1.0} if engines is steps else {})
    seen = one_call.run(one_call.target_of(FIX, name), engines, state, **given)
    misread = apart if engines is gates else apart.replace("b", "")
    assert all(torch.equal(one, gate) for one, gate in zip(seen, (a, b), strict=True))
    assert state.counters.corrections == bool(misread)
    for one, gate, which in zip(seen, (a, b), "ab", strict=True):
        assert one.is_contiguous() if which in misread else one is gate


@pytest.mark.parametrize("values, keys, fact", [(48, 16, ON), (32, 16, OFF), (16, 16, OFF), (64, 16, OFF), (80, 16, ON)])
def test_the_layer_s_own_kernel_splits_for_some_models(values, keys, fact):
    text = {"linear_num_value_heads": values, "linear_num_key_heads": keys}
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    assert FACTS["gates that are views"](Deployment("sglang", config=config)).values == (fact,)
