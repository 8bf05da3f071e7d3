"""vllm.dcp-mamba-drafts without an engine: which builders count a verification as a decode under DCP."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dcp_mamba_drafts.fix import FIX
from tests.support import one_call


def init(self, reorder_batch_threshold=1, supports_spec_as_decode=False, supports_dcp_with_varlen=False):
    self.given = reorder_batch_threshold, supports_spec_as_decode, supports_dcp_with_varlen


def run(*arguments, kind="Mamba2AttentionMetadataBuilder", dcp=2, drafts=3):
    """What the engine's function was given, and corrections."""
    builder = type(kind, (), {})()
    speculative = SimpleNamespace(num_speculative_tokens=drafts) if drafts else None
    parallel = SimpleNamespace(decode_context_parallel_size=dcp)
    builder.vllm_config = SimpleNamespace(parallel_config=parallel, speculative_config=speculative)
    state = FixState(FIX)
    one_call.run(one_call.target_of(FIX, "_init_reorder_batch_threshold"), init, state, builder, *arguments)
    return builder.given, state.counters.corrections


def test_a_verification_is_a_decode_to_mamba2():
    assert run(1, True) == ((1, True, True), 1)


@pytest.mark.parametrize(
    "more", [{"kind": "FlashInferMetadataBuilder"}, {"kind": "GDNAttentionMetadataBuilder"}, {"dcp": 1}, {"drafts": 0}]
)
def test_other_builders_and_servers_are_left_alone(more):
    assert run(1, True, **more) == ((1, True, False), 0)


def test_a_builder_that_asks_for_one_token_gets_it():
    assert run(1, False) == ((1, False, False), 0)
    assert run(1, True, True) == ((1, True, True), 0)
