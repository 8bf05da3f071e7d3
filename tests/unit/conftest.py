"""A small engine of our own, to reach what real releases do not do on demand: every state, every failure."""

from __future__ import annotations

import importlib
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from attnfix.compat.arming.activation import Activation
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.gate import judge, module_lookup
from tests.robustness import small_engine

ATTENTION = '''
"""Attention of a small engine."""
import functools


class Backend:
    def __init__(self):
        self.captured = self.forward

    def forward(self, x, scale=2):
        """Doubles."""
        # a comment
        if x == "boom":
            raise KeyError(x)
        return x * scale
'''
PLAN = """
def plan(x):
    return x + 1
"""
CORRECTIONS = f"""{small_engine.CORRECTIONS}
def other(call, instance):
    return call() + 5

def broken_after(call, instance):
    call()
    raise ValueError("after")

def broken_before(call, instance):
    raise ValueError("before")
"""


_forget = judge.ledger.load.cache_clear


class SmallEngine:
    """Package `sglang` with modules `attention` and `planning`, and fixes whose ledger calls this code affected."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.root = folder / "sglang"
        self.root.mkdir()
        (self.root / "__init__.py").touch()
        self.write("attention", ATTENTION)
        self.write("planning", PLAN)
        (folder / "fix").mkdir()
        (folder / "fix" / "corrections.py").write_text(CORRECTIONS)
        self.corrections = importlib.import_module("corrections")
        self.fix = Fix(
            id="sglang.small-fix", title="t", symptom="s", symptoms=(), cause="c", correction="r", hardware="any", default=True,
            default_reason="", upstream=Upstream("a/b", 1), cost="", expect="",
            targets=(
                Target(self.corrections.forward, paths=("sglang.attention:Backend.forward",)),
                Target(self.corrections.plan, paths=("sglang.planning:plan",)),
            ),
            witnesses=("sglang.attention:Backend.__init__",),
        )  # fmt: skip
        self.judge_as("affected")

    def write(self, module: str, source: str) -> None:
        (self.root / f"{module}.py").write_text(textwrap.dedent(source))

    def judge_as(self, verdict: str, fix: Fix | None = None) -> None:
        """Write the ledger that knows the code as it stands now."""
        small_engine.judge(self.folder, fix or self.fix, verdict)
        _forget()

    def one_target(self, correction: str = "forward", id: str = "sglang.small-fix") -> Fix:
        target = Target(getattr(self.corrections, correction), paths=("sglang.attention:Backend.forward",))
        fix = replace(self.fix, id=id, targets=(target,), witnesses=())
        self.judge_as("affected", fix)
        return fix

    def load(self, activation: Activation, *modules: str):
        """Import modules of the engine as the import hook sees it; the last one is returned."""
        for name in modules:
            module = importlib.import_module(f"sglang.{name}")
            activation.module_loaded(f"sglang.{name}")
        return module


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path / "run"))
    # The hook of the attnfix that is installed here would take the small engine for the real one
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if type(finder).__name__ != "_Finder"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "fix"))
    yield SmallEngine(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("sglang", "corrections")]:
        del sys.modules[name]
    module_lookup._seen.clear()
    _forget()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    """No switch of the caller reaches a test, and every message may be said again."""
    import os

    from attnfix.compat.status import messages

    for name in [n for n in os.environ if n.startswith("ATTNFIX")] + ["SGLANG_PLUGINS", "VLLM_PLUGINS"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(messages, "_said", {})
    monkeypatch.setattr(messages, "_armed", {})
