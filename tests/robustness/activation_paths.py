"""Run by a Python that has attnfix and no torch: attnfix is active there, the gate judges, and the command line answers.

A small package stands for sglang, with a target module whose code no ledger knows. Exits with an error where anything is not as
it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

TARGET = "sglang/srt/layers/attention/trtllm_mla_backend.py"
ASKED = (
    "import sys, json; sys.path.insert(0, {site!r}); {step}"
    "import sglang.srt.layers.attention.trtllm_mla_backend; import attnfix; "
    "states = {{row['state'] for row in attnfix.status() if row['fix'].startswith('sglang')}}; "
    "print(json.dumps([sorted(states), [name for name in ('torch', 'wrapt') if name in sys.modules]]))"
)


def main() -> None:
    assert find_spec("torch") is None, "this is about a Python without torch"
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        _small_engine(site)
        around = {**os.environ, "ATTNFIX_RUN_DIR": str(site / "run")}
        for name, flags, step in (
            ("the .pth", ["-I"], ""),
            ("the .pth under multiprocessing", ["-E"], ""),
            ("the entry point", ["-I"], "import attnfix.bootstrap.entry_points; attnfix.bootstrap.entry_points.activate(); "),
        ):
            states, others = json.loads(_said([sys.executable, *flags, "-c", ASKED.format(site=folder, step=step)], around))
            assert "unknown source" in states and others == ["wrapt"], (name, states, others)
        shown = _said([sys.executable, "-m", "attnfix", "status", "--json"], around)
        assert shown.count('"unknown source"') and json.loads(shown), "the records are read"
        listed = _said([sys.executable, "-m", "attnfix", "list", "--json"], around)
        assert json.loads(listed) and "sglang.zero-kv-rows" in listed and "vllm.lse-log-base" in listed, listed
        run = [sys.executable, "-m", "attnfix", "run", "--", sys.executable, "-c", ASKED.format(site=folder, step="")]
        assert "unknown source" in _said(run, around)
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        (point,) = (point for point in entry_points(group=group) if point.name == "attnfix")
        point.load()
    print(f"activation paths: Python {sys.version.split()[0]}, wrapt {__import__('wrapt').__version__}")


def _small_engine(site: Path) -> None:
    path = site / TARGET
    path.parent.mkdir(parents=True)
    for parent in path.parents:
        if parent == site:
            break
        (parent / "__init__.py").touch()
    path.write_text("class TRTLLMMLABackend:\n    def forward_extend(self, q):\n        return q\n")


def _said(command: list[str], around: dict[str, str]) -> str:
    done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 3):  # 3: a fix that is needed does not stand
        raise SystemExit(f"{' '.join(command[:4])}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
