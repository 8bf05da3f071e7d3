"""The peers of scripts/bench/kernels.py: fetched from published releases, built at run time, none of it kept here.

`fetch(DIR)` writes the few files that are needed, `Peers(DIR, work folder)` builds what has to be built and offers each as a
candidate. A peer that cannot be fetched, built or run costs its own rows alone: they say why.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import torch
from packaging.version import Version

from attnfix.compat.releases import fetch as releases
from attnfix.compat.releases import pip_config
from attnfix.kernels import reference
from attnfix.kernels.bench_works import Candidate, Work

HERE = Path(__file__).resolve().parent / "peers"
CUDA_MERGE, SGLANG = "0.20.2", "0.5.11"  # of vLLM, of sglang
TRITON_COMPILES, MASK, TRITON_MERGE = "0.26.0", "0.27.1", "0.33.0"  # of vLLM
TRITON_FILE = "vllm/v1/attention/ops/triton_merge_attn_states.py"
FIXUP_FILE = "sglang/jit_kernel/csrc/attention/fixup_zero_kv.cuh"
FROM_WHEELS = [("vllm", release, TRITON_FILE) for release in (TRITON_COMPILES, MASK, TRITON_MERGE)]
FROM_WHEELS += [("sglang", SGLANG, FIXUP_FILE)]
CUDA_FILE = "attention/merge_attn_states.cu"  # below csrc, in the source archive alone
CSRC = f"vllm-{CUDA_MERGE}/csrc"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


# ---- fetch


def fetch(folder: Path) -> list[Path]:
    """Write the files of every peer below `folder`; returns them. Raises releases.ReleaseError."""
    for engine, release, name in FROM_WHEELS:
        target = folder / f"{engine}-{release}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(releases.fetch(engine, release) / name, target)
    with tempfile.TemporaryDirectory() as work:
        archive = Path(work) / "sdist.tar.gz"
        _download_sdist("vllm", CUDA_MERGE, archive)
        unpack_closure(archive, CUDA_FILE, folder / CSRC)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _download_sdist(engine: str, release: str, to: Path) -> None:
    from attnfix.compat.releases.index import Index

    index = Index(pip_config.read())
    places, failures = index.archives(engine)
    for archive in (a for place in places for a in place if a.version == Version(release) and a.kind == "sdist"):
        index.download(archive, to, releases.SMALL, lambda count: None)
        return
    raise failures[0] if failures else releases.ReleaseError(f"{engine} {release} has no source archive.")


def unpack_closure(archive: Path, first: str, into: Path) -> None:
    """Out of the archive's csrc: `first`, and whatever it and its headers include by quotes."""
    with tarfile.open(archive, "r:*") as tar:
        members = {m.name.partition("/csrc/")[2]: m for m in tar.getmembers() if m.isfile() and m.name.count("/csrc/") == 1}
        wanted, done = [first], set()
        while wanted:
            name = wanted.pop()
            if name in done or (name not in members and name != first):
                continue  # seen, or a header of the toolkit or of torch
            done.add(name)
            file = tar.extractfile(members[name]) if name in members else None
            if file is None:
                raise releases.ReleaseError(f"The source archive has no csrc/{first}.")
            data = file.read()
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_bytes(data)
            for included in _INCLUDE.findall(data.decode()):
                # Beside the file, or below csrc.
                wanted += [os.path.normpath(PurePosixPath(name).parent / included), included]


# ---- build and load


class PeerUnavailable(RuntimeError):
    """Why a peer cannot run here."""


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if not found:
        raise PeerUnavailable("no nvcc to build it with")
    return found


def nvcc_command(source: Path, library: Path, includes: list[Path], *more: str) -> list[str]:
    """With the flags of the releases' own builds, for this GPU alone. Our stand-in headers are found first."""
    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    arch = f"{major}{minor}"
    flags = ["-shared", "-std=c++20", "-O2", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-w"]
    flags += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    flags += [f"-I{path}" for path in (HERE / "include", *includes)]
    return [_nvcc(), *flags, str(source), "-o", str(library), *more]


def _compile(source: Path, library: Path, includes: list[Path], *more: str) -> Path:
    done = subprocess.run(nvcc_command(source, library, includes, *more), capture_output=True, text=True, timeout=400)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line] or ["no message"]
        raise PeerUnavailable(f"does not build: {said[0]}")
    return library


def vllm_merge_op(folder: Path, work: Path) -> Callable[..., None]:
    """vLLM's CUDA op, built from the release's source. Raises PeerUnavailable."""
    torch_folder = Path(torch.__file__).parent
    headers = torch_folder / "include"
    more = ["-DENABLE_FP8", f"-L{torch_folder / 'lib'}", *(f"-l{name}" for name in ("c10", "c10_cuda", "torch_cpu", "torch"))]
    includes = [folder / CSRC, headers, headers / "torch/csrc/api/include"]
    torch.ops.load_library(_compile(HERE / "vllm_merge.cu", work / "vllm_merge.so", includes, *more))
    return torch.ops.attnfix_peers.merge_attn_states  # as the release calls it: the packet, not an overload


def _sglang_fixup(folder: Path, work: Path) -> Callable[..., None]:
    below = (folder / f"sglang-{SGLANG}" / FIXUP_FILE).parent
    library = ctypes.CDLL(str(_compile(HERE / "sglang_fixup.cu", work / "sglang_fixup.so", [below])))
    function = library.fixup_zero_kv_rows_bf16
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 5 + [ctypes.c_void_p]

    def fixup(out: torch.Tensor, lse: torch.Tensor, kv_lens: torch.Tensor, cum_seq_lens: torch.Tensor, longest: int) -> None:
        pointers = [t.data_ptr() for t in (out, lse, kv_lens, cum_seq_lens)]
        code = function(*pointers, *out.shape, kv_lens.shape[0], longest, torch.cuda.current_stream().cuda_stream)
        if code:
            raise RuntimeError(f"sglang's fix-up failed with CUDA error {code}")

    return fixup


def load_triton(folder: Path, release: str) -> ModuleType:
    """The release's module of its Triton merge; what it imports of vLLM is stood in for."""
    path = folder / f"vllm-{release}" / TRITON_FILE
    spec = importlib.util.spec_from_file_location(f"attnfix_peer_{release.replace('.', '_')}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PeerUnavailable(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    with _stand_ins():
        sys.modules[spec.name] = module  # Triton looks a kernel's module up by name
        spec.loader.exec_module(module)
    return module


@contextmanager
def _stand_ins() -> Iterator[None]:
    import triton
    import triton.language

    class Platform:
        @staticmethod
        def fp8_dtype() -> torch.dtype:
            return torch.float8_e4m3fn

    offered: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.platforms": {"current_platform": Platform},
        "vllm.triton_utils": {"tl": triton.language, "triton": triton},
    }
    before = {name: sys.modules.get(name) for name in offered}
    for name, content in offered.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(content)
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


# ---- candidates


class Peers:
    """Every peer that `folder` holds, ready to run."""

    def __init__(self, folder: Path, work: Path) -> None:
        makers: dict[str, Callable[[], Any]] = {
            "vllm_op": lambda: vllm_merge_op(folder, work),
            "sglang_fixup": lambda: _sglang_fixup(folder, work),
            "triton": lambda: load_triton(folder, TRITON_MERGE).merge_attn_states,
            "triton_compiles": lambda: load_triton(folder, TRITON_COMPILES).merge_attn_states,
            "mask": lambda: load_triton(folder, MASK).mask_empty_context,
        }
        self.failures: dict[str, str] = {}
        with ThreadPoolExecutor(2) as pool:  # the first two are builds
            futures = {name: pool.submit(make) for name, make in list(makers.items())[:2]}
            made = {name: self._made(name, make) for name, make in list(makers.items())[2:]}
            made |= {name: self._made(name, future.result) for name, future in futures.items()}
        self.vllm_op, self.sglang_fixup, self.triton, self.triton_compiles, self.mask = (made[name] for name in makers)

    def _made(self, name: str, make: Callable[[], Any]) -> Callable[..., Any]:
        try:
            return make()
        except Exception as error:  # one peer less; its rows say why
            said = self.failures[name] = f"{type(error).__name__}: {error}"[:300]

            def unavailable(*args: object) -> None:
                raise PeerUnavailable(said)

            return unavailable

    def merge(self, merge: Callable[..., Any], i: Any, context: int | None = None) -> None:
        merge(i.output, i.prefix, i.prefix_lse, i.suffix, i.suffix_lse, i.output_lse, context)

    def cuda_merge(self, i: Any) -> None:
        self.vllm_op(i.output, i.output_lse, i.prefix, i.prefix_lse, i.suffix, i.suffix_lse, i.work.context, None)

    def _sglang_and_vllm(self, i: Any) -> None:
        self.sglang_fixup(i.prefix, i.token_major_lse, i.batch.kv_lens, i.batch.cum_seq_lens, i.batch.max_seq_len)
        self.cuda_merge(i)

    def _mask_and_merge(self, i: Any) -> None:
        self.mask(i.prefix_lse, i.prefix, i.batch.cum_seq_lens, i.batch.cum_kv_lens)
        self.cuda_merge(i)

    def candidates(self, work: Work) -> list[Candidate]:
        """Who else does this work."""
        if work.family == "merge":
            return [
                Candidate(f"vLLM {CUDA_MERGE} CUDA", self.cuda_merge),
                Candidate(f"vLLM {TRITON_MERGE} Triton", lambda i: self.merge(self.triton, i, i.work.context)),
            ]
        if work.family == "fix-up":
            return [
                Candidate(
                    f"sglang {SGLANG} CUDA",
                    lambda i: self.sglang_fixup(i.out, i.lse, i.batch.kv_lens, i.batch.cum_seq_lens, i.batch.max_seq_len),
                ),
                Candidate(
                    f"vLLM {MASK} mask", lambda i: self.mask(i.lse.t(), i.out, i.batch.cum_seq_lens, i.batch.cum_kv_lens)
                ),
                Candidate(
                    "torch masked_fill",
                    lambda i: reference.fixup_zero_kv_rows(i.out, i.lse, i.batch.kv_lens, i.batch.cum_seq_lens, False),
                ),
            ]
        if work.family == "one pass":
            # sglang's fix-up wants the LSE as [tokens, heads], vLLM's merge as [heads, tokens]: the turn is not timed.
            return [
                Candidate(f"sglang {SGLANG} + vLLM {CUDA_MERGE}", self._sglang_and_vllm, prepare=neutral_lse),
                # 0.26-0.27 merge by the CUDA op on NVIDIA GPUs, whether V is padded or not: the kernel of 0.20.
                Candidate(f"vLLM {MASK} mask + merge", self._mask_and_merge),
            ]
        return []

    def host_calls(self, inputs: Any) -> dict[str, Callable[[], object]]:
        """What is called per launch on the host, by name; only what runs."""
        i, before = inputs, (inputs.prefix, inputs.prefix_lse, inputs.suffix, inputs.suffix_lse)
        calls = {
            f"vLLM {CUDA_MERGE} CUDA": ("vllm_op", partial(self.vllm_op, i.output, i.output_lse, *before, None, None)),
            f"vLLM {TRITON_MERGE} Triton": ("triton", partial(self.triton, i.output, *before, i.output_lse)),
        }
        return {name: call for name, (peer, call) in calls.items() if peer not in self.failures}


def neutral_lse(i: Any) -> None:
    i.prefix_lse[:, i.unread] = float("-inf")


def sources(folder: Path) -> dict[str, str]:
    """sha256 of every file that a run used."""
    import hashlib

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
