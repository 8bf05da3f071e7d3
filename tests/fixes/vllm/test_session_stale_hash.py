"""vllm.session-stale-hash without an engine: which hashes a session keeps when it is updated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.session_stale_hash.fix import FIX
from tests.support import one_call


def _update_request_as_session(self, session, update):
    """The engine's: drops what is not computed, adds what came, and hashes the blocks that have no hash."""
    session.tokens = session.tokens[: session.num_computed_tokens] + update
    for at in range(len(session.block_hashes), len(session.tokens) // 4):
        session.block_hashes.append(tuple(session.tokens[: 4 * at + 4]))


def run(computed, hashes):
    """(hashes behind the update, corrections) of a session of eight tokens, 0 to 7, whose update is 8 to 12."""
    session = SimpleNamespace(num_computed_tokens=computed, tokens=list(range(8)))
    session.block_hashes = [tuple(range(4 * at + 4)) for at in range(hashes)]
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=SimpleNamespace(hash_block_size=4)))
    state = FixState(FIX)
    state.fired = True
    target = one_call.target_of(FIX, "_update_request_as_session")
    one_call.run(target, _update_request_as_session, state, scheduler, session, [8, 9, 10, 11, 12])
    return session.block_hashes, state.counters.corrections


def test_a_block_that_ends_in_the_dropped_token_is_hashed_anew():
    first, second = (0, 1, 2, 3), (0, 1, 2, 3, 4, 5, 6, 8)
    assert run(7, 2) == ([first, second, (*second, 9, 10, 11, 12)], 1)


@pytest.mark.parametrize("computed, hashes, behind", [(7, 1, 3), (8, 2, 3), (7, 0, 3)])
def test_hashes_of_computed_blocks_stay(computed, hashes, behind):
    found, corrections = run(computed, hashes)
    assert len(found) == behind and corrections == 0
