"""Fixes that rest on what FlashAttention's kernels return, on those kernels alone: without a model, on a Hopper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnfix.patches.catalogue import BY_ID
from tests.gpu import fa2_empty_rows, fa3_tree_sinks
from tests.gpu.serving import cases, processes

LIMIT = "sglang.fa3-context-limit"


def test_fa2_empty_rows() -> None:
    pytest.importorskip("vllm.vllm_flash_attn.flash_attn_interface")
    assert fa2_empty_rows.main() == 0


def test_fa3_tree_sinks() -> None:
    pytest.importorskip("sgl_kernel.flash_attn")
    assert fa3_tree_sinks.main() == 0


@pytest.mark.parametrize("words", ["slots", "none"])
def test_fa3_context_limit(words: str, tmp_path: Path) -> None:
    """words: behind the page tables lie slots of the cache, so that reading there is wrong, or none: an illegal access."""
    if reason := cases.why_not("sglang", (LIMIT,)):
        pytest.skip(reason)
    stock, patched = (_side(words, environment) for environment in (cases.OFF, {BY_ID[LIMIT].switch: "1"}))
    wrong = failures(words, stock, patched)
    assert not wrong, "\n".join(wrong)


def _side(words: str, environment: dict[str, str]) -> dict[str, Any]:
    """What `fa3_context_limit` prints, or {"error": the exceptions that it told of}."""
    command = [sys.executable, str(Path(__file__).with_name("fa3_context_limit.py")), words]
    ran = subprocess.run(command, env=processes.environment(**environment), capture_output=True, text=True, timeout=200)
    if ran.returncode == 0:
        return json.loads(ran.stdout.splitlines()[-1])
    return {"error": " ".join(processes.errors(ran.stderr)) or f"ended with {ran.returncode}: {ran.stderr[-500:]}"}


def failures(words: str, stock: dict[str, Any], patched: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. An error of stock must be the kernel's."""
    wrong = []
    red = any(told in stock.get("error", "") for told in ("illegal memory access", "page_table"))
    if not red and not _is_wrong(stock):
        wrong.append(f"stock: {stock.get('error', 'right')}")
    if "error" in patched or _is_wrong(patched) or not patched["scenario"]["error"] < 0.01:
        wrong.append(f"patched: {patched.get('error', 'wrong')}")
    elif not patched["corrections"]:
        wrong.append(f"patched: {LIMIT} corrected nothing")
    if "control" in stock and "control" in patched and stock["control"]["bits"] != patched["control"]["bits"]:
        wrong.append("the control has other bits")
    if words == "slots" and "control" not in stock:
        wrong.append("the control of stock did not run")
    return wrong


def _is_wrong(side: dict[str, Any]) -> bool:
    error = side["scenario"]["error"] if "scenario" in side else 0
    return error == "not finite" or error > 0.05
