"""Variants of the kernel of empty rows beside the present one and sglang's: checked bit for bit, timed in turns.

    python -m scripts.bench.fixup_variants --peers DIR --out FILE     or as a file, with fixup_variants.cu beside it

Needs torch with CUDA, nvcc, an installed attnfix with its kernels, and what `scripts.bench.kernels --fetch DIR` wrote; without
--peers it looks below the current folder. Run where the peers' stand-in headers (scripts/bench/peers/include) are below the
current folder or beside this file. Times are of replayed graphs, as attnfix.kernels.bench takes them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
HERE = Path(__file__).resolve().parent
UNIT = 32 << 10
PEER = "sglang 0.5.11"
PEER_FILE = "sglang-0.5.11/sglang/jit_kernel/csrc/attention/fixup_zero_kv.cuh"

BUILDS = {
    "st64": {"THREADS": 64},
    "st128": {"THREADS": 128},
    "st256": {"THREADS": 256},
    "st512": {"THREADS": 512},
    "st1024": {"THREADS": 1024},
    "st128-cs": {"THREADS": 128, "EVICT_FIRST": 1},
    "st256-2perlane": {"THREADS": 256, "PER_LANE": 2},
    "st128-2perlane": {"THREADS": 128, "PER_LANE": 2},
    "st128-pdl": {"THREADS": 128, "PDL": 1},
    "tma4x32": {"THREADS": 32, "TILE": 4 << 10},
    "tma4x64": {"THREADS": 64, "TILE": 4 << 10},
    "tma8x128": {"THREADS": 128, "TILE": 8 << 10},
    "tma16x128": {"THREADS": 128, "TILE": 16 << 10},
    "tma32x128": {"THREADS": 128, "TILE": 32 << 10},
    "tma4x32-ef": {"THREADS": 32, "TILE": 4 << 10, "EVICT_FIRST": 1},
    "tma4x32-pdl": {"THREADS": 32, "TILE": 4 << 10, "PDL": 1},
}


@dataclass(frozen=True)
class Variant:
    """A build, and how units fall to its blocks.

    The grid is `waves` times what runs at once, or `per_sm` blocks per multiprocessor, but no more than all tokens have units.
    A block's units lie side by side, or those of the blocks that run at once take turns.
    """

    build: str
    waves: int = 1
    turns: bool = True
    unit: int = UNIT
    per_sm: int = 0
    least: int = 0  # bytes that a unit may shrink to while there are fewer units than blocks

    @property
    def name(self) -> str:
        grid = f"{self.per_sm}/sm" if self.per_sm else f"{self.waves}w"
        return f"{self.build} {grid} {'turns' if self.turns else 'runs'}" + (
            f" {self.least >> 10}-{self.unit >> 10}K" if self.least else f" {self.unit >> 10}K" if self.unit != UNIT else ""
        )


VARIANTS = [
    # One wave: a persistent grid, with the new loop. More: what the block scheduler gives to whoever is ready.
    *(Variant("st256", waves) for waves in (1, 2, 4, 8)),
    Variant("st256", 4, turns=False),
    Variant("st256", 1000),  # a block for every unit of the whole tensor
    *(Variant("st128", waves) for waves in (1, 2, 4, 8)),
    *(Variant("st128", waves, turns=False) for waves in (2, 4)),
    Variant("st128", 2, unit=16 << 10),
    Variant("st128", 2, unit=64 << 10),
    *(Variant("st64", waves) for waves in (1, 2, 4)),
    Variant("st64", 2, unit=16 << 10),
    # A narrow window of memory that moves on: short turns.
    *(Variant("st256", 4, unit=unit << 10) for unit in (4, 8, 16)),
    *(Variant("st256", 1, unit=unit << 10) for unit in (4, 8)),
    Variant("st128", 2, unit=4 << 10),
    Variant("st1024", 4, unit=16 << 10),
    # Little work on more blocks.
    *(Variant("st256", waves, least=8 << 10) for waves in (1, 4)),
    *(Variant("st128", waves, least=4 << 10) for waves in (1, 2, 4)),
    Variant("tma4x32", 1, least=4 << 10),
    Variant("tma4x32", 2, least=8 << 10),
    Variant("st512", 4),
    Variant("st1024", 4),
    Variant("st1024", 8),
    *(Variant(build, 2) for build in ("st128-cs", "st128-2perlane", "st128-pdl")),
    *(Variant("tma4x32", waves) for waves in (1, 2, 4)),
    Variant("tma4x32", 2, turns=False),
    Variant("tma4x32", 2, unit=16 << 10),
    Variant("tma4x32", 1000),
    *(Variant("tma4x64", waves) for waves in (1, 2, 4)),
    *(Variant("tma8x128", waves) for waves in (1, 2, 4)),
    *(Variant("tma8x128", per_sm=n) for n in (1, 2, 4)),
    *(Variant("tma16x128", per_sm=n) for n in (2, 8)),
    Variant("tma16x128", per_sm=2, unit=16 << 10),
    *(Variant("tma32x128", per_sm=n) for n in (1, 4)),
    *(Variant(build, 2) for build in ("tma4x32-ef", "tma4x32-pdl")),
    *(Variant(build, 1) for build in ("st256-2perlane", "st128-pdl", "tma4x32-pdl")),
    Variant("st256-2perlane", 4),
]

# The present kernel on other grids: blocks per multiprocessor, bytes of a unit and what it may shrink to.
PRESENT = [(1, 16 << 10, 0), (1, 64 << 10, 0), (1, UNIT, 8 << 10), (2, 16 << 10, 0), (2, UNIT, 0)]


# ---- build


def nvcc() -> str:
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin")
    if not found:
        raise SystemExit("no nvcc")
    return found


def build(source: Path, library: Path, includes: list[Path], defines: dict[str, int], arch: str) -> str:
    """'' or the compiler's errors; with -Xptxas -v in `library`.txt."""
    command = [nvcc(), "-shared", "-std=c++20", "-O2", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-w"]
    command += ["-Xptxas", "-v", "-gencode", f"arch=compute_{arch},code=sm_{arch}", *(f"-I{path}" for path in includes)]
    command += [*(f"-D{key}={value}" for key, value in defines.items()), str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    library.with_suffix(".txt").write_text(done.stderr)
    return "" if done.returncode == 0 else (done.stderr + done.stdout)[-600:]


def find_below(folder: Path, name: str) -> Path | None:
    return next(iter(sorted(folder.rglob(name))), None) if folder.is_dir() else None


def peer_source(given: Path | None) -> tuple[Path, list[Path]] | None:
    """The launcher of sglang's kernel and its include folders."""
    stand_ins = next((p for p in (HERE / "peers", Path("scripts/bench/peers")) if (p / "sglang_fixup.cu").is_file()), None)
    roots = [given] if given else [Path("."), HERE]
    header = next((found for root in roots if root and (found := find_below(root, PEER_FILE))), None)
    if not stand_ins or not header:
        return None
    return stand_ins.resolve() / "sglang_fixup.cu", [stand_ins.resolve() / "include", header.resolve().parent]


def build_all(work: Path, peers: Path | None, csrc: Path, arch: str, workers: int) -> dict[str, str]:
    """What went wrong, by build."""
    with ThreadPoolExecutor(workers) as pool:
        jobs = {
            name: pool.submit(build, HERE / "fixup_variants.cu", work / f"{name}.so", [csrc], defines, arch)
            for name, defines in BUILDS.items()
        }
        peer = peer_source(peers)
        if peer:
            jobs[PEER] = pool.submit(build, peer[0], work / "peer.so", peer[1], {}, arch)
        said = {name: job.result() for name, job in jobs.items()}
    if not peer:
        said[PEER] = f"no {PEER_FILE} below {peers or '.'}, or no peers/sglang_fixup.cu"
    return {name: text for name, text in said.items() if text}


# ---- launch


def log2_packs(size: int) -> int:
    return (size // 16).bit_length() - 1


def packed(i: Any, unit: int, least: int, lens: Any = None, cumulative: bool = False) -> tuple[Any, int]:
    """FixupParams of an input, and how many packs there are; the last two fields as given."""
    from attnfix.kernels.parameters import FixupParams, fast_div, in_packs, words

    lens = i.batch.kv_lens if lens is None else lens
    cum = i.batch.cum_seq_lens
    tokens, heads, head_size = i.out.shape
    pack = 16 // i.out.element_size()
    row_packs, head_packs = heads * head_size // pack, head_size // pack
    params = FixupParams(
        i.out.data_ptr(),
        i.lse.data_ptr(),
        (lens.data_ptr(), cum.data_ptr(), words(lens), words(cum), cum.shape[0] - 1, cumulative),
        tokens,
        in_packs(i.out.stride(), pack),
        i.lse.stride(),
        fast_div(row_packs),
        fast_div(head_packs),
        unit,
        least,
    )
    return params, tokens * row_packs


class Kernel:
    """A loaded variant."""

    def __init__(self, library: Path, stream: Callable[[], int], sms: int) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.fixup_launch.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        self.resident, self.sms, self.stream = self.library.fixup_resident(), sms, stream

    def run(self, v: Variant, i: Any, lens: Any = None, cumulative: bool = False) -> int:
        least = v.least or v.unit
        params, packs = packed(i, log2_packs(v.unit) | log2_packs(least) << 8, 0, lens, cumulative)
        side_by_side = v.per_sm * self.sms or self.resident
        grid = min(-(-packs * 16 // least), side_by_side * (1 if v.per_sm else v.waves))
        params.least_unit = min(grid, side_by_side) if v.turns else 0  # `unused` there
        code = self.library.fixup_launch(ctypes.addressof(params), grid, self.stream())
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return grid


def present(blocks: int, unit: int, least: int = 0, on: Any = None) -> Callable[[Any], None]:
    """The present kernel for rows without gaps on another grid, or another build of it that is loaded as `on`."""
    from attnfix.kernels import driver

    def run(i: Any) -> None:
        device = on or driver.device(i.out.device.index)
        params, packs = packed(i, log2_packs(unit), log2_packs(least or unit))
        grid = min(device.sm_count * blocks, -(-packs * 16 // (least or unit)))
        pointers = i.out.data_ptr(), i.lse.data_ptr(), i.batch.kv_lens.data_ptr(), i.batch.cum_seq_lens.data_ptr()
        driver.Launch(device, "fixup_zero_kv_rows_dense", grid, 128, params, 4)(pointers)

    return run


def peer(library: Path) -> Callable[[Any], None]:
    import torch

    function = ctypes.CDLL(str(library)).fixup_zero_kv_rows_bf16
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 5 + [ctypes.c_void_p]

    def run(i: Any) -> None:
        tensors = i.out, i.lse, i.batch.kv_lens, i.batch.cum_seq_lens
        sizes = *i.out.shape, i.batch.kv_lens.shape[0], i.batch.max_seq_len
        code = function(*(t.data_ptr() for t in tensors), *sizes, torch.cuda.current_stream().cuda_stream)
        if code:
            raise RuntimeError(f"CUDA error {code}")

    return run


# ---- check


class Case:
    """An input as the kernels take it; `batch` has kv_lens, cum_seq_lens and, for the peer, max_seq_len."""

    def __init__(self, out: Any, lse: Any, batch: Any) -> None:
        self.out, self.lse, self.batch = out, lse, batch


class Lens:
    kv_lens: Any
    cum_seq_lens: Any
    max_seq_len = 0


def other_cases(device: str) -> Iterator[tuple[str, Case, bool]]:
    """Name, input, whether the lengths are offsets: what the benchmark's shapes do not have."""
    import random

    import torch

    for seed in range(16):
        rng = random.Random(seed)
        requests = rng.choice([1, 5, 31, 64, 129, 300])
        heads, size = rng.choice([(1, 128), (16, 128), (3, 72), (5, 8), (8, 64), (2, 576)])
        lens = [rng.choice([0, 1, 3, 17, rng.randrange(40)]) for _ in range(requests)]
        kv = [rng.choice([0, 0, -1, 5]) for _ in range(requests)]
        cumulative, wide = seed % 3 == 0, torch.int64 if seed % 4 == 1 else torch.int32
        if cumulative:
            kv = [max(n, 0) for n in kv]
            kv = [sum(kv[:b]) for b in range(requests + 1)]
        tokens = max(1, sum(lens) + rng.randrange(9))
        out = torch.randn(tokens, heads, size + (16 if seed % 5 == 2 else 0), device=device).to(torch.bfloat16)[:, :, :size]
        lse = torch.randn(heads, tokens, device=device).t() if seed % 2 else torch.randn(tokens, heads, device=device)
        if seed % 8 == 6:
            lse = torch.randn(tokens, heads * 2, device=device)[:, ::2]
        batch = Lens()
        batch.kv_lens = torch.tensor(kv, dtype=wide, device=device)
        batch.cum_seq_lens = torch.tensor([sum(lens[:b]) for b in range(requests + 1)], dtype=wide, device=device)
        layout = "heads first" if seed % 2 else "tokens first"
        yield f"{requests} requests, {tokens} x {heads} x {size}, {layout}, seed {seed}", Case(out, lse, batch), cumulative


class Checked:
    """What an input must hold afterwards, by plain torch."""

    def __init__(self, i: Any, cumulative: bool = False) -> None:
        import torch

        self.i = i
        kv = i.batch.kv_lens.diff() if cumulative else i.batch.kv_lens
        cum = i.batch.cum_seq_lens.long()
        empty = torch.zeros(i.out.shape[0], dtype=torch.bool, device=i.out.device)
        rows = torch.repeat_interleave(kv <= 0, cum.diff())
        empty[: rows.shape[0]] = rows
        i.out[empty] = float("nan")
        i.lse[empty] = float("nan")
        self.before = i.out.clone(), i.lse.clone()
        self.after = tuple(t.clone() for t in self.before)
        self.after[0][empty] = 0
        self.after[1][empty] = float("-inf")

    def wrong(self, run: Callable[[], object]) -> str:
        import torch

        self.i.out.copy_(self.before[0])
        self.i.lse.copy_(self.before[1])
        try:
            run()
            if self.i.out.is_cuda:
                torch.cuda.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        for name, have, want, bits in zip(
            ("out", "lse"), (self.i.out, self.i.lse), self.after, (torch.int16, torch.int32), strict=True
        ):
            if not torch.equal(have.view(bits), want.view(bits)):
                return f"{name} differs: {int((have.view(bits) != want.view(bits)).sum())} of {have.numel()}"
        return ""


# ---- measure


def measure(work: Any, candidates: dict[str, Callable[[Any], object]], timer: Any, singles: Any) -> dict:
    """µs by candidate, or what was wrong."""
    import torch

    from attnfix.kernels import bench
    from attnfix.kernels.bench_works import Candidate

    sets = bench._sets(work)
    found: dict = {"bytes": work.bytes, "sets": len(sets), "us": {}, "p10": {}, "single": {}, "wrong": {}}
    checked, graphs = Checked(sets[0]), {}
    rounds = max(1, min(-(-bench._LAUNCHES // len(sets)), bench._LAUNCHED_BYTES // (work.bytes * len(sets))))
    for name, run in candidates.items():
        wrong = "" if name.startswith("memset") else checked.wrong(partial(run, sets[0]))
        if not wrong:
            row: dict = {}
            graph = bench._graph(Candidate(name, run), sets * rounds, row)
            wrong = row.get("note", "")
        if wrong:
            found["wrong"][name] = wrong
        else:
            graphs[name] = graph
    del checked
    replays = timer.turns([g.replay for g in graphs.values()], len(sets) * rounds, flush=False)
    for name, replayed in zip(graphs, replays, strict=True):
        found["us"][name], found["p10"][name] = round(replayed["us"], 2), round(replayed["us_p10"], 2)
    alone = singles.turns([partial(candidates[name], sets[0]) for name in graphs])
    for name, single in zip(graphs, alone, strict=True):
        found["single"][name] = round(single["us"], 2)
    del sets, graphs, alone, replays
    gc.collect()
    torch.cuda.empty_cache()
    return found


def import_installed() -> None:
    """attnfix.kernels: the folder attnfix/ of the repository, which `python -m` finds first, has none."""
    try:
        import attnfix.kernels
    except ImportError:
        for name in [name for name in sys.modules if name.split(".")[0] == "attnfix"]:
            del sys.modules[name]
        sys.path[:] = [path for path in sys.path if path and Path(path).resolve() != Path.cwd()]
        import attnfix.kernels  # noqa: F401


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="what scripts.bench.kernels --fetch wrote")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names: only variants with one of them")
    parser.add_argument("--dry", action="store_true", help="build for sm_90 and end")
    args = parser.parse_args()

    import_installed()
    import attnfix.kernels

    csrc = Path(attnfix.kernels.__file__).parent / "csrc"
    variants = [v for v in VARIANTS if not args.only or any(part in v.name for part in args.only)]
    for name in [name for name in BUILDS if all(v.build != name for v in variants)]:
        del BUILDS[name]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        work = Path(folder)
        arch = "90"
        if not args.dry:
            import torch

            arch = "{}{}".format(*torch.cuda.get_device_capability())
        workers = len(os.sched_getaffinity(0))
        building = pool.submit(build_all, work, args.peers, csrc, arch, workers)
        if not args.dry:
            torch.zeros(1, device="cuda")
        failed = building.result()
        built = round(time.perf_counter() - STARTED, 1)
        registers = {}
        for name in BUILDS:
            lines = [
                line.split(":", 1)[-1].strip()
                for line in (work / f"{name}.txt").read_text().splitlines()
                if "Used" in line or "spill" in line
            ]
            registers[name] = "; ".join(lines)
        if args.dry:
            print(json.dumps({"seconds": built, "failed": failed, "registers": registers}, indent=1))
            return 1 if failed else 0
        report = run(work, variants, failed, args)
    report |= {"built_after_s": built, "registers": registers}
    write(args.out, report)
    table(report)
    return 0


def run(work: Path, variants: list[Variant], failed: dict[str, str], args: argparse.Namespace) -> dict:
    import torch

    from attnfix.kernels import bench
    from attnfix.kernels.bench_works import FIXUPS

    bench.require_kernels()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    kernels = {
        name: Kernel(work / f"{name}.so", lambda: torch.cuda.current_stream().cuda_stream, sms)
        for name in BUILDS
        if name not in failed
    }
    variants = [v for v in variants if v.build in kernels]
    candidates: dict[str, Callable[[Any], object]] = {"present": bench.ours_fixup}
    if PEER not in failed:
        candidates[PEER] = peer(work / "peer.so")
    for blocks, unit, least in PRESENT:
        candidates[f"present {blocks}/sm {f'{least >> 10}-' if least else ''}{unit >> 10}K"] = present(blocks, unit, least)
    for v in variants:
        candidates[v.name] = lambda i, v=v: kernels[v.build].run(v, i)
    report: dict = {**bench.machine(), "failed": failed, "resident": {n: k.resident for n, k in kernels.items()}, "works": {}}

    # Few blocks and small units: so that rounds, waves and turns all come up.
    report["wrong_elsewhere"] = {}
    for name, case, cumulative in other_cases("cuda"):
        checked = Checked(case, cumulative)
        for v in variants:
            wrong = checked.wrong(partial(kernels[v.build].run, v, case, None, cumulative))
            small = Variant(v.build, 1, v.turns, 4 << 10, per_sm=1, least=1 << 10)
            wrong = wrong or checked.wrong(partial(kernels[v.build].run, small, case, None, cumulative))
            if wrong:
                report["wrong_elsewhere"].setdefault(v.name, []).append(f"{name}: {wrong}")
    report["checked_after_s"] = round(time.perf_counter() - STARTED, 1)

    timer, singles = bench.Timer(args.repeats), bench.Timer(10)
    for shape in (FIXUPS[2], FIXUPS[4], FIXUPS[3], FIXUPS[0], FIXUPS[1]):  # those that matter most first
        rows = shape.empty * shape.heads * 128
        memset = {"memset (bound)": lambda i, rows=rows: i.out.view(-1)[:rows].zero_()}
        report["works"][shape.name] = measure(shape, candidates | memset, timer, singles)
        report["seconds"] = round(time.perf_counter() - STARTED, 1)
        write(args.out, report)
    return report


def write(path: Path | None, report: dict) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


def table(report: dict) -> None:
    """One line of JSON, then µs by candidate; * is slower than the peer or the present kernel by more than 1 %."""
    works = report["works"]
    print(json.dumps({name: w["us"] for name, w in works.items()}))
    names = list(dict.fromkeys(name for w in works.values() for name in w["us"]))
    print(f"{report['device']}, {report['seconds']} s, built after {report['built_after_s']} s, failed: {report['failed']}")
    print(" " * 30 + "".join(f"{name.removeprefix('empty rows, ')[:19]:>20}" for name in works))
    for name in names:
        cells = []
        for w in works.values():
            us, bars = w["us"].get(name), [w["us"][n] for n in ("present", PEER) if n in w["us"]]
            behind = us is not None and bars and us > min(bars) * 1.01
            cells.append(("wrong" if us is None else f"{us:.2f}{'*' if behind else ' '}").rjust(20))
        print(f"{name:30}" + "".join(cells))
    for name, w in works.items():
        for candidate, wrong in w["wrong"].items():
            print(f"WRONG {name}: {candidate}: {wrong}")
    for candidate, wrongs in report["wrong_elsewhere"].items():
        print(f"WRONG ELSEWHERE {candidate}: {len(wrongs)}, first {wrongs[0]}")


if __name__ == "__main__":
    sys.exit(main())
