"""sglang.mamba-empty-node without an engine: prompts of which less than a page may be matched, and others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_empty_node.fix import FIX
from tests.support import one_call

PAGE = 4


class Key:
    """As many tokens as the engine's key, of which `limit` may be matched."""

    def __init__(self, tokens, limit):
        self.token_ids, self.limit = tokens, limit

    def __len__(self):
        return min(self.limit, len(self.token_ids))

    def child_key(self, page):
        return tuple(self.token_ids[:page])


def pre_process(self, params):
    return params.key


@pytest.mark.parametrize("tokens, limit, page, corrections", [
    ("abcd", 3, PAGE, 1),
    ("abcdefgh", 1, PAGE, 1),
    ("abcdefgh", 4, PAGE, 0),
    ("abcdefgh", 0, PAGE, 0),
    ("abc", 2, PAGE, 0),
    ("abce", 3, PAGE, 0),
    ("abcd", 3, 1, 0),
])  # fmt: skip
def test_a_part_that_ends_within_a_cached_page_matches_nothing(tokens, limit, page, corrections):
    key, state = Key(tokens, limit), FixState(FIX)
    tree = SimpleNamespace(page_size=page, root_node=SimpleNamespace(children={tuple("abcd"): None, ("a",): None}))
    (target,) = FIX.targets
    found = one_call.run(target, pre_process, state, tree, SimpleNamespace(key=key))
    assert (found, state.counters.corrections) == (None if corrections else key, corrections)
