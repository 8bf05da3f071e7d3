"""Compiles csrc/*.cu with NVRTC into cubins, PTX and a manifest.

Standard library only and no relative imports: the PEP 517 backend loads this file by its path, before anything is
installed. NVRTC and the CUDA headers come from the packages `nvidia-cuda-nvrtc-cu12` and `nvidia-cuda-runtime-cu12`;
no CUDA toolkit, GPU or host compiler is needed. By hand: `python kernels/build.py [--out DIR]`.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
DEFAULT_OUT = HERE / "compiled"
# One cubin serves every later minor version of its major version: sm_80 also runs on 8.6 and 8.9, sm_100 on 10.3.
ARCHES = ("sm_80", "sm_90", "sm_100", "sm_120")
PTX = "compute_80"  # for every architecture with no cubin; the driver compiles it at load
MANIFEST = "manifest.json"
_OURS = re.compile(r"manifest\.json|.+\.sm_\d+[af]?\.cubin|.+\.compute_\d+[af]?\.ptx")


class BuildError(RuntimeError):
    """The kernels could not be compiled; the text holds NVRTC's log where there is one."""


class Nvrtc:
    """The few NVRTC calls a compile needs. Calls release the GIL, so threads compile side by side."""

    def __init__(self) -> None:
        path = _find("lib/libnvrtc.so.12", "NVRTC 12", "nvidia-cuda-nvrtc-cu12")
        self.include = _find("include/cuda_fp16.h", "the CUDA headers", "nvidia-cuda-runtime-cu12").parent
        try:
            # NVRTC opens its builtins by bare name, which is found only when they are loaded already.
            for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.12*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            self._lib = ctypes.CDLL(str(path))
        except OSError as error:
            raise BuildError(f"NVRTC could not be loaded: {error}") from error
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: Path, arch: str) -> tuple[bytes, list[str]]:
        """The cubin (`sm_…`) or PTX (`compute_…`) of one source file, and the names of its kernels."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None)
        try:
            options = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{source.parent}", f"-I{self.include}"]
            argv = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            code = self._lib.nvrtcCompileProgram(program, len(options), argv)
            if code:
                log = self._fetch(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
                raise BuildError(f"{source.name} does not compile for {arch} ({self._name(code)}):\n{log}")
            ptx = self._fetch(program, "PTX").rstrip(b"\0")
            entries = sorted(re.findall(r"\.entry\s+(\w+)", ptx.decode()))
            if not entries:
                raise BuildError(f"{source.name} holds no kernel for {arch}")
            return (self._fetch(program, "CUBIN") if arch.startswith("sm_") else ptx), entries
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._lib, name)(*args)
        if code:
            raise BuildError(f"{name} failed: {self._name(code)}")

    def _name(self, code: int) -> str:
        return str(self._lib.nvrtcGetErrorString(code).decode())


def compile_all(
    out_dir: Path = DEFAULT_OUT,
    arches: tuple[str, ...] = ARCHES,
    ptx: str | None = PTX,
    verbose: bool = True,
    sources: Path = SOURCES,
) -> list[Path]:
    """Compile every kernel for every architecture and return the files written, the manifest last.

    All or nothing: what an earlier build left in `out_dir` is removed first (foreign files stay), so a failure leaves no
    stale kernels; everything is compiled before anything is written. Raises BuildError when NVRTC, the headers or the
    sources fail.
    """
    out_dir, sources = Path(out_dir), Path(sources)
    for old in out_dir.iterdir() if out_dir.is_dir() else ():
        if _OURS.fullmatch(old.name):
            old.unlink()
    kernels = sorted(sources.glob("*.cu"))
    if not kernels:
        raise BuildError(f"no kernel sources (*.cu) in {sources}")
    started = time.perf_counter()
    nvrtc = Nvrtc()
    targets = [*arches, *([ptx] if ptx else [])]
    jobs = [(k, t) for k in kernels for t in targets]
    with ThreadPoolExecutor(2) as pool:
        binaries = dict(zip(jobs, pool.map(lambda job: nvrtc.compile(*job), jobs), strict=True))

    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir.parent, prefix=f".{out_dir.name}-") as folder:
        staged, entries = Path(folder), {}
        for kernel in kernels:
            files = {t: f"{kernel.stem}.{t}.{'cubin' if t.startswith('sm_') else 'ptx'}" for t in targets}
            for target, name in files.items():
                (staged / name).write_bytes(binaries[kernel, target][0])
            names = binaries[kernel, targets[0]][1]
            if any(binaries[kernel, target][1] != names for target in targets):
                raise BuildError(f"{kernel.name} holds other kernels on some architectures")
            entries[kernel.stem] = {"entry_points": names, "files": files}
        manifest = {
            "format": 1,
            "nvrtc": nvrtc.version,
            "arches": list(arches),
            "ptx": ptx,
            "sources": {p.name: _sha256(p) for p in sorted([*kernels, *sources.glob("*.cuh")])},
            "kernels": entries,
        }
        (staged / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        written = _install(staged, out_dir)
    if verbose:
        size = sum(p.stat().st_size for p in written) / 1024
        print(
            f"attnfix: {len(kernels)} kernels for {', '.join(targets)} by NVRTC {nvrtc.version}: "
            f"{len(written)} files, {size:.0f} KiB, {time.perf_counter() - started:.1f} s",
            file=sys.stderr,
        )
    return written


def _install(staged: Path, out_dir: Path) -> list[Path]:
    out_dir.mkdir(exist_ok=True)
    # The manifest comes last: without it the folder counts as not built, should this be interrupted.
    names = sorted((p.name for p in staged.iterdir()), key=lambda name: (name == MANIFEST, name))
    return [Path(shutil.move(staged / name, out_dir / name)) for name in names]


def _find(relative: str, what: str, package: str) -> Path:
    """A file of an installed NVIDIA package: nvidia/<package>/… in CUDA 12 wheels, whatever the middle folder."""
    try:
        roots = list(importlib.import_module("nvidia").__path__)
    except ImportError:
        roots = []
    for root in roots:
        for found in sorted(Path(root).glob(f"*/{relative}")):
            return found
    raise BuildError(f"{what} not found: install the package {package} (see build-system.requires in pyproject.toml)")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile the CUDA kernels of attnfix with NVRTC.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the results (default: %(default)s)")
    parser.add_argument("--arch", nargs="+", default=list(ARCHES), metavar="sm_XY", help="default: %(default)s")
    args = parser.parse_args(argv)
    try:
        compile_all(args.out, tuple(args.arch))
    except BuildError as error:
        print(f"attnfix: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
