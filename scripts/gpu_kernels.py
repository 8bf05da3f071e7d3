"""Runs the compiled kernels on this machine's GPU: correctness against float64 first, then plain timings.

    python scripts/gpu_kernels.py [--out DIR]

Needs torch with CUDA, hypothesis (the cases are those of the tests) and compiled kernels (an installed attnfix, or
`python kernels/build.py`). A time is the median over CUDA events with the L2 cache flushed before each run; `floor` is
the time a device copy measured here would need for the same bytes. Exits 1 when a case fails or the fallback served it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnfix.kernels import fixup_zero_kv_rows, kernel_status, merge_attn_states
from attnfix.kernels.bench import Timer, copy_rate, host_us

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import kernel_cases as cases

HEAD_SIZE = 128
MERGES = [(512, 16), (2048, 16), (8192, 16), (8192, 128)]  # tokens, heads
FIXUPS = [  # name, query tokens per request, requests without KV, heads
    ("8 x 1024, 4 empty", [1024] * 8, 4, 16),
    ("16 x 2048, 8 empty", [2048] * 16, 8, 128),
    ("1 x 16384 with KV, 63 x 16 empty", [16] * 63 + [16384], 63, 128),
]


def correctness() -> list[dict]:
    """A fixed list of cases over layouts, dtypes and options; each is `ok` or holds the error."""
    results = []
    for seed, layout in enumerate(cases.VALUE_LAYOUTS * 6):
        dtype, lse = cases.DTYPES[seed % 3], cases.LSE_LAYOUTS[seed // 2 % 3]
        others = [cases.VALUE_LAYOUTS[(seed + i) % len(cases.VALUE_LAYOUTS)] for i in (0, seed // 7)]
        heads, size = cases.HEADS[seed % len(cases.HEADS)], cases.HEAD_SIZES[seed % len(cases.HEAD_SIZES)]
        fp8 = seed % 4 == 3
        merge = cases.MergeCase(
            tokens=129,
            heads=heads,
            head_size=size,
            dtype=dtype,
            layouts=(layout, *others),
            lse_layouts=(lse,) * 3,
            in_place="" if fp8 else ("", "prefix", "suffix")[seed % 3],
            context=("none", "zero", "middle", "all")[seed % 4],
            with_lse=seed % 5 != 0,
            fp8=fp8,
            base2=seed % 2 == 0,
            kv_lens=(None, (0, 4, 0, 9))[seed // 3 % 2],
            empty=0.3,
            spread=(2.0, 30.0)[seed % 2],
            seed=seed,
        )
        fixup = cases.FixupCase(
            query_lens=(7, 0, 100, 1, 33),
            kv_lens=(0, 0, 5, 0, (0, 8)[seed % 2]),
            heads=heads,
            head_size=size,
            dtype=dtype,
            layout=layout,
            lse_layout=lse,
            padding=seed % 3,
            cumulative=seed % 2 == 1,
            index_dtypes=(torch.int32, (torch.int32, torch.int64)[seed % 2]),
            index_step=1 + seed % 2,
            seed=seed,
        )
        results.append(_attempt("merge_attn_states", merge, cases.run_merge_case, merge_attn_states))
        results.append(_attempt("fixup_zero_kv_rows", fixup, cases.run_fixup_case, fixup_zero_kv_rows))
    return results


def _attempt(name: str, case: object, run: Callable, op: Callable) -> dict:
    before = kernel_status()[name]["launches"]
    try:
        run(case, op, "cuda")
        torch.cuda.synchronize()
        error = None
    except AssertionError as failure:
        error = str(failure) or "assertion failed"
    after = kernel_status()[name]["launches"]
    if after["cuda"] != before["cuda"] + 1 or after["reference"] != before["reference"]:
        error = f"{error or ''} the CUDA path did not serve it: {kernel_status()[name]['reason']}".strip()
    return {"op": name, "case": str(case), "ok": error is None, "error": error}


def timings(repeats: int) -> dict:
    timer = Timer(repeats)
    rate_of_copy = copy_rate(timer)
    rows = []

    def row(name: str, size: int, call: Callable[[], object]) -> None:
        measured = timer(call)
        rate, floor = size / measured["us"] / 1e3, size / rate_of_copy / 1e3
        rows.append({"work": name, "bytes": size, **measured, "gb_s": rate, "floor_us": floor})

    for tokens, heads in MERGES:
        values = [torch.randn(tokens, heads, HEAD_SIZE, device="cuda").bfloat16() for _ in "ops"]
        lses = [torch.randn(heads, tokens, device="cuda") for _ in "ops"]
        arguments = (values[0], values[1], lses[1], values[2], lses[2], lses[0])
        size = 3 * (values[0].numel() * 2 + lses[0].numel() * 4)
        row(f"merge {tokens} x {heads} x {HEAD_SIZE}", size, lambda a=arguments: merge_attn_states(*a))
    for name, lens, empty, heads in FIXUPS:
        out = torch.randn(sum(lens), heads, HEAD_SIZE, device="cuda").bfloat16()
        lse = torch.randn(heads, sum(lens), device="cuda").t()
        cum = torch.tensor([0, *torch.tensor(lens).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
        kv = torch.tensor([0] * empty + [512] * (len(lens) - empty), dtype=torch.int32, device="cuda")
        size = sum(lens[:empty]) * heads * (HEAD_SIZE * 2 + 4)
        row(f"fixup {name}, {heads} heads", size, lambda a=(out, lse, kv, cum): fixup_zero_kv_rows(*a))

    small = [torch.randn(4, 4, HEAD_SIZE, device="cuda") for _ in "ops"], [torch.randn(4, 4, device="cuda") for _ in "ops"]
    lens = torch.tensor([0], device="cuda"), torch.tensor([0, 4], device="cuda")
    return {
        "copy_gb_s": rate_of_copy,
        "rows": rows,
        "host_us": {
            "merge_attn_states": host_us(
                lambda: merge_attn_states(small[0][0], small[0][1], small[1][1], small[0][2], small[1][2], small[1][0])
            ),
            "fixup_zero_kv_rows": host_us(lambda: fixup_zero_kv_rows(small[0][0], small[1][0], *lens)),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for gpu_kernels.json")
    parser.add_argument("--repeats", type=int, default=100, help="timed runs per row (default: %(default)s)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("attnfix: no CUDA GPU here", file=sys.stderr)
        return 1
    started = time.perf_counter()
    torch.cuda.init()
    first = torch.ones(1, 1, 8, device="cuda"), torch.ones(1, 1, device="cuda")
    lens = torch.tensor([0], device="cuda"), torch.tensor([0, 1], device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    fixup_zero_kv_rows(*first, *lens)
    first_ms = (time.perf_counter() - begin) * 1e3

    checked = correctness()
    failed = [c for c in checked if not c["ok"]]
    for case in failed:
        print(f"FAILED {case['op']}: {case['error']}\n  {case['case']}")
    measured = timings(args.repeats)
    report = {
        "device": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "first_call_ms": first_ms,
        "correctness": {"cases": len(checked), "failed": failed},
        "timings": measured,
        "kernel_status": kernel_status(),
        "seconds": time.perf_counter() - started,
    }
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "gpu_kernels.json").write_text(json.dumps(report, indent=1) + "\n")
    _print(report)
    return 1 if failed else 0


def _print(report: dict) -> None:
    measured = report["timings"]
    print(f"{report['device']}, torch {report['torch']}, Python {report['python']}")
    cases_, failed = report["correctness"]["cases"], len(report["correctness"]["failed"])
    print(f"correctness: {cases_ - failed} of {cases_} cases equal float64 on the CUDA path")
    host = ", ".join(f"{op} {us:.1f}" for op, us in measured["host_us"].items())
    print(f"copy {measured['copy_gb_s']:.0f} GB/s; first call {report['first_call_ms']:.1f} ms; host µs per call: {host}")
    print(f"{'work (bf16)':<46}{'MB':>9}{'µs':>9}{'p10-p90':>16}{'GB/s':>8}{'floor µs':>10}")
    for r in measured["rows"]:
        spread = f"{r['us_p10']:.1f}-{r['us_p90']:.1f}"
        print(
            f"{r['work']:<46}{r['bytes'] / 1e6:>9.1f}{r['us']:>9.1f}{spread:>16}{r['gb_s']:>8.0f}{r['floor_us']:>10.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
