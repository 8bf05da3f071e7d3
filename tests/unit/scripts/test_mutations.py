"""What the robustness tests of wrong patching are made of: mutants are other code, reformatted files not, callees are found."""

from __future__ import annotations

import ast
import random

import pytest

from attnfix.compat.gate.digest import digest_of
from tests.robustness.mutations import Mutations
from tests.robustness.reformatted import REFORMATTED

SOURCE = '''
"""A module."""
from sglang.planning import plan as planned  # elsewhere
from sglang import tools

LIMIT = 5


@tools.register("a", 'b')
class Backend(tools.Base):
    """A class."""

    scale: float = 1.0

    def __init__(self, size, *, wide=False):
        """Ours."""
        self.size, self.wide = size, wide

    @property
    def twice(self):
        return 2 * self.size

    def forward(self, x, mode="prefill", **rest):
        text = """two
lines  # no comment
"""
        if mode == "prefill" and not self.wide:
            x = planned(x, [1, 2,
                3], key={"a": -1})
            x += tools.helpers.shift(x) if x > LIMIT else self.twice
        for kind in (int, float):
            x = kind(x)
        return super().forward(x), self._finish(text), tools.Base.start(self)

    def _finish(self, text):
        return text or None


def free(a, b=None):
    return a - b
'''
PLACES = ["Backend.forward", "Backend.__init__", "Backend.scale", "Backend", "free", "LIMIT", ""]


@pytest.mark.parametrize("qualname", PLACES)
def test_a_mutant_is_python_and_other_code(qualname):
    kinds, known = set(), digest_of(SOURCE, qualname)
    for mutant in Mutations(SOURCE, qualname).drawn(random.Random(1)):
        assert digest_of(mutant.source, qualname) != known, mutant.what
        kinds.add(mutant.kind)
    assert len(kinds) >= (10 if qualname == "Backend.forward" else 1)


@pytest.mark.parametrize("way", REFORMATTED)
def test_what_is_written_otherwise_is_the_same_code(way):
    written = REFORMATTED[way](SOURCE)
    assert written != SOURCE.encode()
    assert all(digest_of(written, qualname) == digest_of(SOURCE, qualname) for qualname in PLACES)
    strings = [node.value for node in ast.walk(ast.parse(written)) if isinstance(node, ast.Constant)]
    assert "two\nlines  # no comment\n" in strings
