"""vllm.mamba-chunk-blocks without an engine: a scheduler that counts in shorter blocks, and others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_chunk_blocks.fix import FIX
from tests.support import one_call


class MambaSpec(SimpleNamespace):
    pass


class FullAttentionSpec(SimpleNamespace):
    pass


def split(self, request, num_new_tokens, num_new_local_computed_tokens=0):
    assert self.cache_config.mamba_cache_mode == "align"
    size = self.cache_config.block_size
    return num_new_tokens // size * size


@pytest.mark.parametrize(
    "states, attention, tokens, computed, result, corrections",
    [
        (48, 32, 64, 0, 48, 1),
        (48, 32, 96, 0, 96, 0),  # the same end
        (48, 48, 64, 0, 48, 0),
        (0, 32, 64, 0, 64, 0),
        (48, 32, 64, 200, 64, 0),  # it decodes: the engine's rule is asked once
    ],
)
def test_chunks_end_at_blocks_of_states(states, attention, tokens, computed, result, corrections):
    request = SimpleNamespace(num_computed_tokens=computed, num_prompt_tokens=200, num_tokens=201)
    specs = [FullAttentionSpec(block_size=attention), *[MambaSpec(block_size=states)] * (states > 0)]
    config = SimpleNamespace(block_size=attention, mamba_cache_mode="align")
    scheduler = SimpleNamespace(
        cache_config=config,
        kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs]),
    )
    state = FixState(FIX)
    target = one_call.target_of(FIX, "_mamba_block_aligned_split")
    assert one_call.run(target, split, state, scheduler, request, tokens) == result
    assert state.counters.corrections == corrections and scheduler.cache_config is config and config.block_size == attention
