"""Everything in this folder needs a CUDA GPU and compiled kernels; without a GPU it is skipped, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def _why_not() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "no CUDA GPU here"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    reason = _why_not() if mine else None
    for item in mine if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
