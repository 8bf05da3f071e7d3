"""What binds the global names that a witness reads is part of its digest, and nothing else of its file is."""

from __future__ import annotations

import pytest

from attnfix.compat.gate import judge, source_files
from attnfix.compat.gate.digest import digest_of
from attnfix.compat.releases import fetch
from attnfix.patches.vllm.catalogue import FIXES
from attnfix.prove import edited_release

SOURCE = """
import torch, torch.nn
from engine.ops import (
    merge,
    other,
)
from engine.platforms import current as platform
from engine.constants import *
if platform.is_cuda():
    from engine.cuda import attend
else:
    from engine.slow import attend
try:
    import fast
except ImportError:
    fast = None
LOG2 = 1.5
SCALES: dict = {"a": 1}
left, right = 1, 2
for kind in ("a", "b"):
    pass
with open("x") as opened:
    pass

def helper(x):
    return x

def configure(value):
    global LOG2
    LOG2 = value

class Backend:
    def forward(self, q: Query) -> Answer:
        out = attend(q, torch.exp(q), fast, LOG2, SCALES, left, kind, opened)
        return merge(helper(out), HIDDEN)
"""
PLACE = "Backend.forward"
OTHER = {
    "import of a name": ("    merge,\n", "    better as merge,\n"),
    "module of an import": ("from engine.ops import", "from fork.ops import"),
    "relative import": ("from engine.ops import", "from .engine.ops import"),
    "import of a module": ("import torch, torch.nn", "import fork as torch"),
    "condition of an import": ("platform.is_cuda()", "platform.is_cuda_alike()"),
    "one branch": ("from engine.slow import attend", "from engine.cuda import attend"),
    "branches exchanged": ("if platform.is_cuda()", "if not platform.is_cuda()"),
    "except": ("except ImportError", "except Exception"),
    "assignment in it": ("fast = None", "fast = torch"),
    "constant": ("LOG2 = 1.5", "LOG2 = 1.25"),
    "annotated": ('{"a": 1}', '{"a": 2}'),
    "element": ("left, right", "SCALES['b'] = 2\nleft, right"),
    "attribute": ("left, right", "torch.exp = None\nleft, right"),
    "tuple": ("left, right = 1, 2", "left, right = 2, 2"),
    "augmented": ("left, right = 1, 2", "left, right = 1, 2\nleft += 1"),
    "deleted": ("left, right = 1, 2", "left, right = 1, 2\ndel left"),
    "walrus": ("left, right = 1, 2", "left, right = 1, 2\nif left := 3: pass"),
    "loop": ('("a", "b")', '("a", "c")'),
    "with": ('open("x")', 'open("y")'),
    "global of a function": ("LOG2 = value", "LOG2 = value + 1"),
    "star": ("engine.constants import *", "fork.constants import *"),
    "another star": ("LOG2 = 1.5", "from fork import *\nLOG2 = 1.5"),
    "function replaced": ("def helper(x):\n    return x", "helper = len"),
    "function gone": ("def helper(x):\n    return x", "pass"),
    "bound again": ("class Backend:", "from fork import helper\nclass Backend:"),
    "class bound again": ("class Backend:", "if torch:\n  Backend = None\nclass Backend:"),
}
SAME = {
    "import beside it": ("    merge,\n", "    another,\n    merge,\n"),
    "order in the block": ("    merge,\n    other,\n", "    other,\n    merge,\n"),
    "a block of its own": ("    merge,\n    other,\n)", "    other,\n)\nfrom engine.ops import merge"),
    "submodule": ("import torch, torch.nn", "import torch, torch.cuda\nimport torch.nn"),
    "written twice": ("    merge,\n", "    merge as merge,\n"),
    "annotation": ("SCALES: dict", "SCALES: dict[str, int]"),
    "no annotation": ("SCALES: dict", "SCALES"),
    "body of a function": ("    return x\n", "    return -x\n"),
    "what nobody reads": ("class Backend", "import os\nUNREAD = 3\nclass Backend"),
    "import for annotations": ("class Backend", "from fork import Query, Answer\nclass Backend"),
}


@pytest.mark.parametrize("name", OTHER)
def test_another_binding_is_other_code(name):
    assert SOURCE.count(OTHER[name][0]) == 1
    assert digest_of(SOURCE.replace(*OTHER[name]), PLACE) != digest_of(SOURCE, PLACE) is not None


@pytest.mark.parametrize("name", SAME)
def test_what_the_witness_does_not_read_is_the_same_code(name):
    assert SAME[name][0] in SOURCE
    changed = SOURCE.replace(*SAME[name])
    assert changed != SOURCE and digest_of(changed, PLACE) == digest_of(SOURCE, PLACE)


def test_a_witness_that_is_an_import_is_the_one_name():
    text = "from a import b, c\n"
    assert digest_of(text, "b") == digest_of("from a import d, b\n", "b") != digest_of("from z import b, c\n", "b")


MLA = "vllm.model_executor.layers.attention.mla_attention"
LINE = "from vllm.v1.attention.ops.merge_attn_states import merge_attn_states\n"
READS = ("vllm.mla-context-order", "vllm.quantized-mla-context")


@pytest.fixture(scope="module")
def mla():
    """Source and sources of a release in which one import names the merge of partial results."""
    sources = source_files.Sources(fetch.fetch("vllm", "0.24.0", progress=False) / "vllm")
    text = sources(MLA).decode()
    assert text.count(LINE) == 1
    return sources, text


def verdicts(sources, text):
    read = edited_release.read(sources, lambda read: {MLA: text})
    fixes = [fix for fix in FIXES if fix.id in READS]
    known = {fix.id: judge.ledger.load(fix).by_digests(judge.digests(fix, read)) for fix in fixes}
    return {name: code and code.verdict for name, code in known.items()}


def test_an_operators_own_merge_by_one_edited_import_is_unknown_source(mla):
    sources, text = mla
    assert "affected" in verdicts(sources, text).values() and None not in verdicts(sources, text).values()
    edited = text.replace(LINE, "from fork.ops import merge_attn_states\n")
    assert set(verdicts(sources, edited).values()) == {None}


def test_an_import_that_no_witness_reads_beside_it_is_no_other_code(mla):
    sources, text = mla
    edited = text.replace(LINE, f"{LINE}from fork.ops import something\n")
    assert verdicts(sources, edited) == verdicts(sources, text)
