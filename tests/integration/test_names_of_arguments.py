"""Every argument that a look or a correction names is one of the engine's function, in every release that is affected."""

from __future__ import annotations

import ast
import inspect

import pytest

from attnfix.compat.fix import Attribute, CodePath, Override
from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES


def parameters(node: ast.FunctionDef) -> set[str]:
    return {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


@pytest.mark.drawn(23)
@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_the_engines_function_has_them(fix):
    affected = [release for release, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED]
    missing = []
    for release in affected:
        sources = source_files.Sources(fetch.fetch(fix.engine, release) / fix.engine)
        for target in fix.targets:
            if isinstance(target, Attribute):
                continue
            code_paths = tuple(map(CodePath.parse, target.of)) if isinstance(target, Override) else target.code_paths
            node = next((node for code_path in code_paths if (node := judge.locate(code_path, sources)) is not None), None)
            for part in filter(None, (target.correct, target.needed) if node is not None else ()):
                wanted = list(inspect.signature(part).parameters.values())[2:]
                names = {each.name for each in wanted if each.default is each.empty}
                missing += [(release, target.name, name) for name in names - parameters(node)]
    assert not missing
    assert affected or any(code.edited for code in ledger.load(fix).code)
