"""The machine code of every shipped architecture, disassembled: how it moves memory, and what it does not do."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from attnfix.kernels import driver

COMPILED = driver.COMPILED
CUBINS = sorted(COMPILED.glob("*.cubin"))
DENSE = "fixup_zero_kv_rows_dense"
LIMIT = 256 << 10  # bytes of one cubin: it is loaded whole


def cuobjdump() -> Path:
    """The one that Triton brings, which proves that interpret kernels need anyway."""
    triton = pytest.importorskip("triton")
    return Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def disassembled(path: Path) -> dict[str, Counter]:
    """Instructions by mnemonic with its width, such as LDG.128, of every kernel in one cubin."""
    said = subprocess.run([cuobjdump(), "-sass", path], capture_output=True, text=True, check=True).stdout
    found: dict[str, Counter] = {}
    for line in said.splitlines():
        if (name := re.search(r"Function : (\w+)", line)) is not None:
            found[name[1]] = Counter()
        elif (code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", line)) is not None:
            parts = code[1].split(".")
            width = next((part for part in ("128", "64") if part in parts), "32")
            found[list(found)[-1]][f"{parts[0]}.{width}"] += 1
    return found


@pytest.fixture(scope="module", params=CUBINS, ids=lambda path: path.stem)
def functions(request: pytest.FixtureRequest) -> dict[str, Counter]:
    return disassembled(request.param)


def test_every_architecture_is_there() -> None:
    assert {path.suffixes[0][1:] for path in CUBINS} == {"sm_80", "sm_90", "sm_100", "sm_120"}


def test_packs_move_16_bytes_at_a_time(functions: dict[str, Counter]) -> None:
    """Both values of a merge are loaded by one instruction each, its result is stored by one; so are zeros."""
    seen = 0
    for name, code in functions.items():
        if name.endswith("_scalar"):
            assert not code["LDG.128"] and not code["STG.128"], name
            continue
        seen += 1
        if name == DENSE:
            continue  # see below
        assert code["LDG.128"] == (2 if name.startswith("merge") else 0), (name, code)
        if "_fp8" in name:
            assert code["STG.64" if "f32" not in name else "STG.32"] >= 1 and not code["STG.128"], (name, code)
        else:
            assert code["STG.128"] >= 1, (name, code)
    assert seen


@pytest.mark.parametrize("path", [path for path in CUBINS if path.stem.startswith("fixup")], ids=lambda path: path.stem)
def test_zeros_of_dense_rows_are_bulk_stores_from_sm_90_on(path: Path) -> None:
    """So the host launches few blocks there, by what the code was compiled for; ordinary stores would be slow with so few."""
    bulk = int(path.suffixes[0].removeprefix(".sm_")) >= 90
    for name, code in disassembled(path).items():
        dense = name == DENSE
        assert code["UBLKCP.32"] == (dense and bulk), (name, code)
        if dense:
            assert bool(code["STG.128"]) is not bulk, code


def test_nothing_lies_in_local_memory(functions: dict[str, Counter]) -> None:
    """No spilled register, no array with an index of run time."""
    for name, code in functions.items():
        assert sum(code.values()) > 50, name
        assert not [op for op in code if op.startswith(("LDL", "STL"))], (name, code)


def test_nothing_waits_or_calls(functions: dict[str, Counter]) -> None:
    """The paths of a serving engine have no division routine and no call; atomics nowhere."""
    for name, code in functions.items():
        assert not [op for op in code if op.startswith(("ATOM", "RED."))], (name, code)
        if name.startswith("merge") and not name.endswith("_scalar") and "fp8" not in name:
            assert not [op for op in code if op.startswith("CALL")], (name, code)


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.stem)
def test_size(path: Path) -> None:
    assert path.stat().st_size < LIMIT, f"{path.stat().st_size} bytes"
