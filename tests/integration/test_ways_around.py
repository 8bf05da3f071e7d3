"""A way around a bug that is told to have run runs: stock is right with it, on a release that the file names, drawn."""

from __future__ import annotations

import pytest

from attnfix.patches.catalogue import BY_ID, ways_around
from attnfix.prove.verdict import is_green
from scripts.ledger import ways_around as script

RAN = [(fix, way, on) for fix, ways in ways_around().items() for way, releases in ways.items() for on in releases]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("fix, way, on", RAN)
def test_stock_is_right(fix, way, on):
    answers = script.ran(BY_ID[fix].engine, on, [BY_ID[fix]])
    assert is_green(answers.get(fix, {}).get(way, {})), answers
