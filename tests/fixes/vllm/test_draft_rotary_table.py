"""vllm.draft-rotary-table without an engine: which configs get the target's length, and which cache key goes with it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.draft_rotary_table.fix import FIX
from tests.support import one_call

LENGTH = 8192
DEFAULT, LLAMA3 = {"rope_type": "default"}, {"rope_type": "llama3", "factor": 8.0}
LINEAR, YARN = {"type": "linear", "factor": 4.0}, {"rope_type": "yarn", "factor": 4.0}
NTK = {"rope_type": "ntk", "factor": 8.0}
MROPE, FOPE = DEFAULT | {"mrope_section": [1, 1]}, DEFAULT | {"use_fope": True}


def init_speculator(vllm_config, device):
    drafts = vllm_config.speculative_config
    if drafts is None or drafts.method == "unknown":
        raise NotImplementedError("unknown")
    return vars(drafts.draft_model_config.hf_config).get("max_position_embeddings")


class Drafts(SimpleNamespace):
    def compute_hash(self):
        return "stock"


def server(positions=2048, rotary=DEFAULT, method="eagle3", text=None, name="rope_parameters", **more):
    config = SimpleNamespace(**{"max_position_embeddings": positions, name: rotary, **more})
    model = SimpleNamespace(hf_config=config, hf_text_config=text or config)
    drafts = Drafts(method=method, draft_model_config=model)
    return SimpleNamespace(speculative_config=drafts, model_config=SimpleNamespace(max_model_len=LENGTH))


def made(config):
    """(length of the drafter as it is loaded, corrections, what compiled code is cached by)."""
    state, hashed = FixState(FIX), FixState(FIX)
    length = one_call.run(one_call.target_of(FIX, "init_speculator"), init_speculator, state, config, "cpu")
    key = one_call.run(one_call.target_of(FIX, "compute_hash"), Drafts.compute_hash, hashed, config.speculative_config)
    return length, state.counters.corrections, key


@pytest.mark.parametrize(
    "rotary", [DEFAULT, LLAMA3, {}, None, {"full": DEFAULT, "sliding": LLAMA3}, {"type": "linear", "factor": 2}, MROPE, NTK]
)
@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "dflash", "dspark"])
def test_a_short_drafter_gets_the_targets_length_and_a_key_of_its_own(rotary, method):
    length, corrections, key = made(server(rotary=rotary, method=method))
    assert (length, corrections) == (LENGTH, 1) and key != "stock" and len(key) == 64


def test_other_lengths_have_other_keys():
    longer = server()
    longer.model_config.max_model_len *= 2
    assert made(server())[2] == made(server())[2] != made(longer)[2]


@pytest.mark.parametrize(
    "positions, rotary",
    [(LENGTH, DEFAULT), (2048, LINEAR), (2048, YARN), (2048, FOPE), (2048, {"full": DEFAULT, "sliding": YARN}),
     (2048, {"rope_type": "linear", "factor": [2.0, 4.0]}), (2048, {"rope_type": "dynamic", "alpha": 2.0})],
)  # fmt: skip
def test_long_tables_and_those_whose_rows_depend_on_their_number_stay(positions, rotary):
    assert made(server(positions, rotary)) == (positions, 0, "stock")


@pytest.mark.parametrize("method", ["draft_model", "ngram", "medusa", "extract_hidden_states"])
def test_other_methods_are_left_alone(method):
    assert made(server(method=method)) == (2048, 0, "stock")


def test_both_configs_of_a_wrapped_drafter_get_it():
    text = SimpleNamespace(max_position_embeddings=2048, rope_scaling=LLAMA3)
    assert made(server(text=text))[:2] == (LENGTH, 1) and text.max_position_embeddings == LENGTH


def test_a_config_without_a_length_is_left_alone():
    assert made(server(None)) == (None, 0, "stock")


def test_it_is_corrected_once():
    config = server()
    assert [made(config)[1] for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("drafts", [None, SimpleNamespace(method="unknown")])
def test_what_the_engine_raises_passes(drafts):
    config = server()
    config.speculative_config = drafts
    with pytest.raises(NotImplementedError, match="unknown"):
        one_call.run(one_call.target_of(FIX, "init_speculator"), init_speculator, FixState(FIX), config, "cpu")
