"""A real engine that is upgraded in place under a live process: a link to its package that from one moment on leads elsewhere.

What is linked into place has times older than the process; what `pip install --upgrade` makes has not (`surroundings`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

OLD, NEW = "0.5.10.post1", "0.5.11"
FIRST = "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin"
SECOND = "sglang.srt.layers.attention.trtllm_mla_backend"
FIX = "sglang.zero-kv-rows"
SCRIPT = """
import importlib, json, os, sys
from types import FunctionType
from attnfix.prove import stubs
stubs.install("sglang")
importlib.import_module({before!r})
os.symlink({new!r}, "sglang.new")
os.replace("sglang.new", "sglang")
importlib.invalidate_caches()
error = None
try:
    importlib.import_module({after!r})
except Exception as raised:  # two releases in one process: the engine's own
    error = repr(raised)
import attnfix
row = next(row for row in attnfix.status() if row["fix"] == {fix!r})
function = vars(sys.modules[{after!r}].TRTLLMMLABackend)["forward_extend"] if {after!r} in sys.modules else None
print("ANSWER" + json.dumps([row["state"], row["reason"], function is None or type(function) is FunctionType, error]))
"""


def wrong() -> dict[str, str | None]:
    """What came out wrong, by the moment of the upgrade."""
    moments = {"before a target was imported": "sglang", "between two targets": FIRST}
    return {f"sglang {OLD} upgraded to {NEW} {moment}": _wrong(before) for moment, before in moments.items()}


def _wrong(before: str) -> str | None:
    from environments import CPU

    from attnfix.compat import releases

    old, new = (str(releases.fetch("sglang", release) / "sglang") for release in (OLD, NEW))
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        (Path(scratch) / "sglang").symlink_to(old)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ATTNFIX", "PYTHON"))}
        environment = {**clean, **CPU, "PYTHONPATH": scratch, "ATTNFIX_RUN_DIR": str(Path(scratch) / "run")}
        script = SCRIPT.format(before=before, new=new, after=SECOND, fix=FIX)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, cwd=scratch, capture_output=True, text=True, timeout=420
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if not lines:
        return f"ended with {done.returncode}: {done.stderr.strip()[-400:]}"
    state, reason, plain, error = json.loads(lines[-1].removeprefix("ANSWER"))
    if state in ("installed", "effective") or not plain:
        return f"patched by what was known of {OLD}: {state} ({reason})"
    if before == FIRST and not error and state != "conflict":
        return f"not noticed: {state} ({reason})"
    return None
