"""What the robustness tests of wrong patching are made of: mutants are other code, reformatted files not, callees are found."""

from __future__ import annotations

import ast
import random

import pytest

from attnfix.compat.fix import CodePath
from attnfix.compat.gate.digest import digest_of
from tests.robustness.callees import callees
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


def test_a_mutant_differs_in_one_place_alone():
    """Another definition of the file keeps its digest, unless it reads the import, or stands in the head, that was changed."""
    for mutant in Mutations(SOURCE, "Backend.forward").drawn(random.Random(2)):
        assert digest_of(mutant.source, "free") == digest_of(SOURCE, "free"), mutant.what
        same = digest_of(mutant.source, "Backend.__init__") == digest_of(SOURCE, "Backend.__init__")
        assert same is not (mutant.kind.endswith("of its class") or "import tools" in mutant.what), mutant.what


def test_the_order_is_drawn_by_the_seed():
    drawn = [[mutant.what for mutant in Mutations(SOURCE, "free").drawn(random.Random(seed))] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and sorted(drawn[0]) == sorted(drawn[2])


@pytest.mark.parametrize("way", REFORMATTED)
def test_what_is_written_otherwise_is_the_same_code(way):
    written = REFORMATTED[way](SOURCE)
    assert written != SOURCE.encode()
    assert all(digest_of(written, qualname) == digest_of(SOURCE, qualname) for qualname in PLACES)
    strings = [node.value for node in ast.walk(ast.parse(written)) if isinstance(node, ast.Constant)]
    assert "two\nlines  # no comment\n" in strings


PACKAGE = {
    "sglang.attention": SOURCE,
    "sglang.planning": "from .deep import plan\n",
    "sglang.deep": "def plan(x, y, key): return x\n",
    "sglang": "",
    "sglang.tools": "from . import helpers\nclass Base:\n def start(self): pass\n def forward(self, x): pass\n",
    "sglang.helpers": "def shift(x): return x\n",
}


class _Fix:
    engine = "sglang"
    code_paths = (CodePath("sglang.attention", "Backend.forward"), CodePath("sglang.deep", "plan"))

    class Target:
        witnesses = (CodePath("sglang.attention", "Backend.forward"),)

    targets = (Target,)


def test_called_functions_and_those_whose_result_is_read():
    found = callees(_Fix, lambda module: text.encode() if (text := PACKAGE.get(module)) is not None else None)
    assert {str(code_path).removeprefix("sglang.") for code_path in found} == {
        "attention:Backend.__init__",  # sets self.wide
        "attention:Backend.twice",
        "attention:Backend._finish",
        "helpers:shift",
        "tools:Base.start",
        "tools:Base.forward",
    }
