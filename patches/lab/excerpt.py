"""Parts of an engine's file whose module cannot be imported here: it would bring in the whole server."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any


def run_excerpt(path: Path, /, *statements: ast.AST, **names: Any) -> dict[str, Any]:
    """Run these statements of the file at `path`, as it has them, with `names` as all their globals, which are returned.

    Annotations are not evaluated. Raises what the statements raise: a NameError for a name that is missing here.
    """
    code = compile(ast.Module(list(statements), []), str(path), "exec")  # type: ignore[arg-type]  # as this module: no annotations
    exec(code, names)  # nosec B102: of the engine that the proof is about
    return names
