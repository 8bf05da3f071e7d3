"""A real engine that is upgraded in place under a live process: a link to its package that from one moment on leads elsewhere.

What is linked into place has times older than the process; what `pip install --upgrade` makes has not (`surroundings`).
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import plain_environment

RELEASE = "0.5.10.post1"
FIRST = "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin"
SECOND = "sglang.srt.layers.attention.trtllm_mla_backend"
FIX = "sglang.zero-kv-rows"
SCRIPT = """
import importlib, json, os, sys
from attnfix.prove import stubs
stubs.install("sglang")
importlib.import_module({before!r})
os.symlink({new!r}, "sglang.new")
os.replace("sglang.new", "sglang")
importlib.invalidate_caches()
importlib.import_module({after!r})
import attnfix
row = next(row for row in attnfix.status() if row["fix"] == {fix!r})
function = vars(sys.modules[{after!r}].TRTLLMMLABackend)["forward_extend"]
print("ANSWER" + json.dumps([row["state"], row["reason"], not hasattr(function, "__wrapped__")]))
"""


def wrong() -> dict[str, str | None]:
    """What came out wrong, by the moment of the upgrade."""
    moments = {"before a target was imported": ("sglang", "unknown source"), "between two targets": (FIRST, "conflict")}
    return {f"sglang {RELEASE}, {moment}": _wrong(*expected) for moment, expected in moments.items()}


def _wrong(before: str, expected: str) -> str | None:
    from attnfix.compat.releases import fetch
    from tests.support.environments import CPU

    old = fetch.fetch("sglang", RELEASE)
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        folder = Path(scratch)
        (folder / "sglang").symlink_to(old / "sglang")
        shutil.copytree(old / "sglang", folder / "newer")
        _change(folder / "newer" / Path(*SECOND.split(".")[1:]).with_suffix(".py"))
        clean = plain_environment()
        environment = {**clean, **CPU, "PYTHONPATH": scratch, "ATTNFIX_RUN_DIR": str(folder / "run")}
        script = SCRIPT.format(before=before, new=str(folder / "newer"), after=SECOND, fix=FIX)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, cwd=scratch, capture_output=True, text=True, timeout=420
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if not lines:
        return f"ended with {done.returncode}: {done.stderr.strip()[-400:]}"
    state, reason, plain = json.loads(lines[-1].removeprefix("ANSWER"))
    return None if state == expected and plain else f"{state} ({reason}), plain: {plain}; not {expected}"


def _change(file: Path) -> None:
    """One statement more in the target: code that nobody has judged."""
    source = file.read_text()
    (function,) = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "forward_extend"
    )  # fmt: skip
    lines = source.splitlines(keepends=True)
    lines.insert(function.body[0].lineno - 1, " " * function.body[0].col_offset + "pass\n")
    file.write_text("".join(lines))
