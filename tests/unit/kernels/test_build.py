"""Compiling the kernels: needs the NVRTC packages of build-system.requires, and no GPU."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.elf import EM_CUDA, read_cubin

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "kernels" / "csrc"


def load_build():
    """By path, as the PEP 517 backend loads it."""
    spec = importlib.util.spec_from_file_location("attnfix_kernel_build", ROOT / "kernels" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kernels") / "compiled"
    out.mkdir()
    for name in ("gone.sm_70.cubin", "manifest.json", "notes.txt"):
        (out / name).write_text("stale")
    written = build.compile_all(out, arches=("sm_90",), ptx="compute_80", verbose=False)
    assert sorted(written) == sorted(p for p in out.iterdir() if p.name != "notes.txt")
    assert written[-1].name == "manifest.json"
    return out


def test_cubins_hold_the_manifests_kernels(compiled: Path) -> None:
    manifest = json.loads((compiled / "manifest.json").read_text())
    assert manifest["arches"] == ["sm_90"] and manifest["ptx"] == "compute_80"
    assert manifest["nvrtc"].startswith("12.")
    assert set(manifest["kernels"]) == {"fixup_zero_kv_rows", "merge_attn_states"}
    for kernel in manifest["kernels"].values():
        cubin = read_cubin(compiled / kernel["files"]["sm_90"])
        assert (cubin.machine, cubin.arch) == (EM_CUDA, 90)
        assert list(cubin.kernels) == kernel["entry_points"]
        ptx = (compiled / kernel["files"]["compute_80"]).read_text()
        assert ".target sm_80" in ptx
        assert sorted(re.findall(r"\.entry (\w+)", ptx)) == kernel["entry_points"]


def test_manifest_names_the_sources(compiled: Path) -> None:
    sources = json.loads((compiled / "manifest.json").read_text())["sources"]
    assert sources == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in CSRC.iterdir()}


def test_stale_files_go_and_foreign_files_stay(compiled: Path) -> None:
    assert not (compiled / "gone.sm_70.cubin").exists()
    assert (compiled / "notes.txt").read_text() == "stale"


def test_entry_points_are_those_the_ops_launch(compiled: Path) -> None:
    kernels = json.loads((compiled / "manifest.json").read_text())["kernels"]
    merge = {f"merge_attn_states_{d}{o}{s}" for d in ("bf16", "f16", "f32") for o in ("", "_fp8") for s in SUFFIXES}
    assert set(kernels["merge_attn_states"]["entry_points"]) == merge
    assert set(kernels["fixup_zero_kv_rows"]["entry_points"]) == {
        f"fixup_zero_kv_rows_{name}" for name in ("dense", "packs", "b16_scalar", "b32_scalar")
    }


SUFFIXES = ("", "_kv", "_scalar")


def test_python_packs_the_structs_the_kernels_take() -> None:
    parameters = pytest.importorskip("attnfix.kernels.parameters")
    text = "".join(p.read_text() for p in CSRC.glob("*.cu"))
    sizes = {name: int(size) for name, size in re.findall(r"sizeof\((\w{2,})\) == (\d+)", text)}
    assert {name: ctypes.sizeof(getattr(parameters, name)) for name in sizes} == sizes and len(sizes) == 3


def test_two_builds_are_equal(compiled: Path, tmp_path: Path) -> None:
    for path in build.compile_all(tmp_path / "again", arches=("sm_90",), verbose=False):
        assert path.read_bytes() == (compiled / path.name).read_bytes(), path.name


def test_broken_source_leaves_nothing(tmp_path: Path) -> None:
    sources, out = tmp_path / "csrc", tmp_path / "out" / "compiled"
    shutil.copytree(CSRC, sources)
    broken = sources / "merge_attn_states.cu"
    broken.write_text(broken.read_text() + "\nint broken( {\n")
    out.mkdir(parents=True)
    (out / "manifest.json").write_text("stale")
    with pytest.raises(build.BuildError, match=r"merge_attn_states\.cu does not compile for sm_90(.|\n)*error"):
        build.compile_all(out, arches=("sm_90",), ptx=None, verbose=False, sources=sources)
    assert not list(out.iterdir()) and list(out.parent.iterdir()) == [out]


def test_source_without_a_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.cu").write_text("__device__ int nothing;\n")
    with pytest.raises(build.BuildError, match="holds no kernel"):
        build.compile_all(tmp_path / "out", arches=("sm_90",), ptx=None, verbose=False, sources=tmp_path)
    assert not (tmp_path / "out").exists()


def test_missing_nvrtc_is_one_sentence(tmp_path: Path) -> None:
    # -S: no site-packages, so no NVIDIA package; -I: nothing of the environment either.
    command = [sys.executable, "-I", "-S", str(ROOT / "kernels" / "build.py"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "nvidia-cuda-nvrtc-cu12" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
