"""How the op launches: which kernel, on how many blocks, with which units."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.kernels import driver, fixup

SMS, TOKENS, HEADS, SIZE = 132, 8192, 16, 128  # 32 MiB of bf16: 1024 units of 32 KiB


def launched(monkeypatch: pytest.MonkeyPatch, out: torch.Tensor, built_for: int) -> tuple:
    """Entry point, blocks, threads, and what a unit is and may shrink to."""
    found: list[tuple] = []

    def launch(on, entry, grid, block, params, pointers):
        found.append((entry.removeprefix("fixup_zero_kv_rows_"), grid, block, params.unit, params.least_unit))
        return lambda addresses: None

    monkeypatch.setattr(fixup, "Launch", launch)
    monkeypatch.setattr(fixup, "loaded_on", lambda device, op: SimpleNamespace(sm_count=SMS, built_for=built_for))
    monkeypatch.setattr(fixup._launches, "add", lambda *args: None)
    cum = torch.tensor([0, out.shape[0]])
    fixup.fixup_zero_kv_rows(out, torch.empty(out.shape[:2]), torch.tensor([0]), cum)
    return found[0]


def values(*, padded: int = 0, tokens: int = TOKENS) -> torch.Tensor:
    return torch.empty(tokens, HEADS, SIZE + padded, dtype=torch.bfloat16)[..., :SIZE]


@pytest.mark.parametrize("built_for", [90, 100, 120])
def test_bulk_stores_need_one_block_per_multiprocessor(monkeypatch: pytest.MonkeyPatch, built_for: int) -> None:
    assert launched(monkeypatch, values(), built_for) == ("dense", SMS, 128, 11, 11)
    assert launched(monkeypatch, values(tokens=64), built_for) == ("dense", 8, 128, 11, 11)


def test_ordinary_stores_need_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched(monkeypatch, values(), 80) == ("dense", 12 * SMS, 128, 11, 8)
    assert launched(monkeypatch, values(tokens=64), 80) == ("dense", 64, 128, 11, 8)


def test_rows_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    for built_for in (80, 90):
        assert launched(monkeypatch, values(padded=64), built_for) == ("packs", 12 * SMS, 128, 11, 8)
        assert launched(monkeypatch, values(padded=1), built_for) == ("b16_scalar", 12 * SMS, 128, 11, 8)


def test_ptx_is_built_for_what_has_no_bulk_stores() -> None:
    """It is compiled for GPUs of any later kind: what its code can do is what the host has to go by."""
    for path in driver.COMPILED.glob("*.ptx"):
        assert path.name.endswith(".compute_80.ptx") and "cp.async.bulk" not in path.read_text(), path.name
