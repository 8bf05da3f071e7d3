"""What changes a digest and what does not."""

from __future__ import annotations

import ast

import pytest

from attnfix.compat.gate.digest import digest_of, find

SOURCE = '''
class A(Base):
    """Doc."""

    limit = None

    @decorated
    def f(self, x: int = 3, *, flag: bool = False) -> str:
        """Doc of f."""
        if x > 1.5 and flag:
            return f"{x!r:>10} ä"
        return None
'''

SAME = {
    "comment": SOURCE.replace("if x", "# why\n        if x"),
    "docstring": SOURCE.replace("Doc of f.", "Other words."),
    "no docstring": SOURCE.replace('        """Doc of f."""\n', ""),
    "format": SOURCE.replace("x > 1.5 and flag", "(x  >  1.5\n            and flag)"),
    "quotes": SOURCE.replace('f"{x!r:>10} ä"', "f'{x!r:>10} ä'"),
    "line endings": SOURCE.replace("\n", "\r\n"),
    "elsewhere": "import os\n" + SOURCE + "\ndef g(): pass\n",
}
OTHER = {
    "rename": SOURCE.replace("flag", "flog"),
    "constant": SOURCE.replace("1.5", "1.25"),
    "constant's type": SOURCE.replace("= 3", "= 3.0"),
    "boolean for integer": SOURCE.replace("= 3", "= True"),
    "operator": SOURCE.replace(" > ", " >= "),
    "None and nothing": SOURCE.replace("return None", "return"),
    "decorator added": SOURCE.replace("@decorated", "@decorated\n    @other"),
    "decorator gone": SOURCE.replace("    @decorated\n", ""),
    "annotation": SOURCE.replace("x: int", "x: float"),
    "string": SOURCE.replace(" ä", " a"),
    "format spec": SOURCE.replace(">10", ">11"),
    "statement": SOURCE.replace("return None", "pass\n        return None"),
    "async": SOURCE.replace("def f", "async def f"),
    "second definition": SOURCE + "\n    def f(self): pass\n",
    "bound again": SOURCE + "\n    f = 3\n",
    "class decorated": SOURCE.replace("class A", "@patched\nclass A"),
    "other base": SOURCE.replace("Base", "Other"),
    "bound by an import": SOURCE + "\n    from fork import f\n",
    "bound in a tuple": SOURCE + "\n    f, g = 1, 2\n",
    "conditional": SOURCE + "\n    if flag:\n        def f(self): pass\n",
}


MATCHED = """
match sys.platform:
    case "linux":
        def f(x): return x
        class A:
            match version:
                case (3, minor) if minor > 10:
                    def g(self): return 1
                case _:
                    def g(self): return 2
    case _:
        def f(x): return -x
"""


@pytest.mark.parametrize("qualname, old, new", [("f", "return x", "return 2"), ("A.g", "return 2", "return 3")])
def test_definitions_in_the_cases_of_a_match(qualname, old, new):
    assert digest_of(MATCHED, qualname) and digest_of(MATCHED, qualname) != digest_of(MATCHED.replace(old, new), qualname)


@pytest.mark.parametrize("name", SAME)
def test_unchanged_by(name):
    assert digest_of(SAME[name], "A.f") == digest_of(SOURCE, "A.f")


@pytest.mark.parametrize("name", OTHER)
def test_changed_by(name):
    assert digest_of(OTHER[name], "A.f") not in (None, digest_of(SOURCE, "A.f"))


def test_a_class_that_is_imported_over_is_not_recognised():
    assert digest_of(SOURCE + "\nfrom fork import A\n", "A.f") is None


def test_reordered_statements_differ():
    assert digest_of("def f():\n a()\n b()", "f") != digest_of("def f():\n b()\n a()", "f")


def test_none_constant_is_kept_apart_from_no_value():
    assert digest_of("def f(): return None", "f") != digest_of("def f(): return", "f")


@pytest.mark.parametrize("qualname", ["A.g", "B", "A.f.x", "f"])
def test_what_is_not_defined_has_no_digest(qualname):
    assert digest_of(SOURCE, qualname) is None


def test_whole_module_and_nested_blocks():
    assert digest_of("try:\n import a\n def f(): pass\nexcept ImportError:\n f = None", "f")
    assert find(ast.parse(SOURCE), "") is not None
    assert digest_of("class A:\n x: int = 1", "A.x") != digest_of("class A:\n x: int = 2", "A.x")
