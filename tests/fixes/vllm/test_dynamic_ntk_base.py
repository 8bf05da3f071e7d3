"""vllm.dynamic-ntk-base without an engine: whose table is written anew, which rows of it, and how often."""

from __future__ import annotations

import shlex
import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dynamic_ntk_base.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS

TRAINED, DYNAMIC = 4, {"rope_type": "dynamic", "factor": 2.0}


class DynamicNTKScalingRotaryEmbedding:
    """Rows of the factor, `factor` times as many as the trained length."""

    def __init__(self, max_position, factor):
        if factor < 0:
            raise ValueError("the engine's")
        self.max_position_embeddings, self.scaling_factor = max_position, factor
        self.cos_sin_cache = self._compute_cos_sin_cache().to(torch.bfloat16)

    def _compute_cos_sin_cache(self):
        return torch.full((int(self.max_position_embeddings * self.scaling_factor), 1), float(self.scaling_factor))


class OtherEmbedding(DynamicNTKScalingRotaryEmbedding):
    pass


_made = {}


def by_parameters(head_size, max_position, rope_parameters=None):
    rope = rope_parameters or {}
    kind = OtherEmbedding if rope.get("other") else DynamicNTKScalingRotaryEmbedding
    return _made.setdefault(str(rope), kind(max_position, rope.get("factor", 2.0)))


def by_scaling(head_size, max_position, rope_scaling=None):
    return by_parameters(head_size, max_position, rope_scaling)


@pytest.fixture(autouse=True)
def alone():
    _made.clear()


def made(rope=DYNAMIC, length=TRAINED, layers=1, connector=None, load_format="auto", get_rope=by_parameters):
    """(rows of the table that the last layer gets, corrections)"""
    state, kv = FixState(FIX), connector and SimpleNamespace(kv_connector=connector)
    parts = {"kv_transfer_config": kv, "load_config": SimpleNamespace(load_format=load_format)}
    server = length and SimpleNamespace(model_config=SimpleNamespace(max_model_len=length), **parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=server))
        patch.delitem(sys.modules, "vllm.config.vllm", raising=False)
        for _ in range(layers):
            rotary = one_call.run(one_call.target_of(FIX, "get_rope"), get_rope, state, 64, TRAINED, rope)
    assert rotary.scaling_factor == (rope or {}).get("factor", 2.0)
    return rotary.cos_sin_cache[:, 0].tolist(), state.counters.corrections


@pytest.mark.parametrize("length", [1, TRAINED])
@pytest.mark.parametrize("get_rope", [by_parameters, by_scaling])
def test_all_layers_share_a_table_whose_rows_are_not_scaled(get_rope, length):
    assert made(length=length, layers=3, get_rope=get_rope) == ([1.0] * TRAINED + [2.0] * TRAINED, 1)


@pytest.mark.parametrize(
    "of",
    [{"length": TRAINED + 1}, {"length": 2 * TRAINED}, {"length": None}, {"connector": "NixlConnector"},
     {"load_format": "tensorizer"}],
)  # fmt: skip
def test_a_server_of_longer_requests_or_whose_keys_others_read_is_left_alone(of):
    assert made(**of) == ([2.0] * 2 * TRAINED, 0)


@pytest.mark.parametrize(
    "rope", [None, {**DYNAMIC, "rope_type": "yarn"}, {**DYNAMIC, "alpha": 8.0}, {**DYNAMIC, "other": True}]
)
def test_other_embeddings_are_left_alone(rope):
    assert made(rope) == ([2.0] * 2 * TRAINED, 0)


@pytest.mark.parametrize("rope", [{**DYNAMIC, "factor": 1.0}])
def test_a_factor_of_one_scales_nothing(rope):
    assert made(rope) == ([1.0] * TRAINED, 0)


def test_a_factor_below_one_is_left_alone():
    assert made({**DYNAMIC, "factor": 0.5}) == ([0.5] * (TRAINED // 2), 0)


def test_what_the_engine_raises_passes():
    with pytest.raises(ValueError, match="the engine's"):
        made({**DYNAMIC, "factor": -1.0})


@pytest.mark.parametrize(
    "more, by",
    [("--max-model-len 32768", ""), ("", "requests beyond the trained length"), ("--max-model-len 32769", "requests beyond"),
     ("--max-model-len 4096 --kv-transfer-config.kv_connector X", "KV connector"),
     ("--max-model-len 4096 --load-format tensorizer", "--load-format")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m {more}"))
    rows = doctor.examine(Deployment("vllm", config=MODELS["InternLM"], launch=line, environment={}), "0.21.0")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}" if by else "corrects it")
