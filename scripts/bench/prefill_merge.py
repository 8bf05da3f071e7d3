"""What the final merge of MLA prefill reads, saves, and how its bits compare with vLLM's own op, on this machine's GPU.

    python -m scripts.bench.prefill_merge [--out DIR]     all of it; compute-sanitizer's part where that is installed
    python -m scripts.bench.prefill_merge --initcheck     the program that runs under compute-sanitizer --tool initcheck
    … --initcheck --control                             the same without the token count: there it must report reads

Needs torch with CUDA and an installed attnfix; the comparison needs nvcc and --peers (vLLM's op is built from its source).
Exits 1 when a check fails; what could not be checked is said.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from attnfix.kernels import kernel_status, merge_attn_states
from attnfix.kernels.bench import Timer

WORKSPACE = 394 << 20  # bytes: VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE of 0.11.1-0.19.1
SIZES = [(2048, 16, 128), (8192, 128, 128)]  # tokens, heads, head size of V
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
#: Without a caching allocator memory comes from the driver, so that what was never written is known to be so
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def initcheck(control: bool) -> None:
    """One merge whose prefix is initialised for the tokens with context alone; the others must come out as the suffix."""
    if not os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise SystemExit("set PYTORCH_NO_CUDA_MEMORY_CACHING=1: memory from a cache counts as initialised")
    tokens, with_context, heads, size = 96, 40, 16, 128
    host = torch.Generator().manual_seed(1)
    values = lambda n: torch.randn(n, heads, size, generator=host).bfloat16()  # noqa: E731
    suffix, suffix_lse = values(tokens), torch.randn(heads, tokens, generator=host)
    prefix = torch.empty(tokens, heads, size, dtype=torch.bfloat16, device="cuda")
    prefix_lse = torch.empty(heads, tokens, device="cuda")
    prefix[:with_context] = values(with_context).cuda()
    prefix_lse[:, :with_context] = torch.randn(heads, with_context, generator=host).cuda()
    output, output_lse = torch.zeros_like(prefix), torch.zeros_like(prefix_lse)
    count = None if control else with_context
    merge_attn_states(output, prefix, prefix_lse, suffix.cuda(), suffix_lse.cuda(), output_lse, count)
    torch.cuda.synchronize()
    if not control:
        assert torch.equal(output.cpu()[with_context:], suffix[with_context:])
        assert torch.equal(output_lse.cpu()[:, with_context:], suffix_lse[:, with_context:])
    assert kernel_status()["merge_attn_states"]["launches"]["cuda"] == 1, kernel_status()
    print("merged")


def sanitized(control: bool) -> dict:
    """`initcheck` under compute-sanitizer: how many errors it reports, and how many of them in the merge kernel."""
    command = ["compute-sanitizer", "--tool", "initcheck", "--print-limit", "100000", sys.executable, __file__, "--initcheck"]
    done = subprocess.run(
        command + ["--control"] * control, capture_output=True, text=True, env={**os.environ, **UNCACHED}, timeout=300
    )
    said = done.stdout + done.stderr
    summary = re.search(r"ERROR SUMMARY: (\d+) error", said)
    reads = [line for line in said.splitlines() if re.search(r"^=+\s+at .*merge_attn_states", line)]
    ran = summary is not None and "merged" in said
    if not ran:
        print(said[-1500:], file=sys.stderr)
    return {"ran": ran, "errors": int(summary[1]) if summary else None, "in_merge": len(reads)}


def costs(repeats: int) -> list[dict]:
    """Median times of what is filled or read without need."""
    timer, rows = Timer(repeats), []

    def row(work: str, size: int, call) -> None:
        rows.append({"work": work, "bytes": size, **timer(call)})

    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
    row("fill the workspace, per chunk", WORKSPACE, lambda: workspace.fill_(0))
    for shape in SIZES:
        tokens, heads, size = shape
        name, elements = " x ".join(map(str, shape)), math.prod(shape)
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        row(f"out {name}: zeros, per chunk", 2 * elements, lambda s=shape, o=options: torch.zeros(s, **o))
        row(f"out {name}: empty", 0, lambda s=shape, o=options: torch.empty(s, **o))
        out, prefix, suffix = (torch.randn(shape, device="cuda").bfloat16() for _ in "ops")
        lses = [torch.randn(heads, tokens, device="cuda") for _ in "ps"]
        one, lse = 2 * elements, 4 * heads * tokens
        for with_context in (None, tokens // 2, 0):
            part = 1.0 if with_context is None else with_context / tokens
            arguments = (out, prefix, lses[0], suffix, lses[1], None, with_context)
            label = "all" if with_context is None else str(with_context)
            size = round((2 + part) * one + (1 + part) * lse)
            row(f"merge {name}: {label} with context", size, lambda a=arguments: merge_attn_states(*a))
    return rows


def vllm_op(peers: Path | None) -> tuple[Any, str]:
    """vLLM's own CUDA op, built from the sources of a release in `peers`, and which one; None and why where it cannot be."""
    if peers is None:
        return None, "no --peers"
    from scripts.bench import compare_peers

    try:
        packet = compare_peers.vllm_merge_op(peers, Path(tempfile.mkdtemp()))
    except (compare_peers.PeerUnavailable, OSError) as error:
        return None, str(error)
    return packet.default, f"vLLM {compare_peers.CUDA_MERGE}"  # type: ignore[attr-defined]


def bits(repeats: int, peers: Path | None) -> dict:
    """Elements whose bits differ between attnfix's op and vLLM's, by what kind of row they lie in."""
    op, name = vllm_op(peers)
    if op is None:
        return {"op": None, "why": name}
    accepts = {argument.name for argument in op._schema.arguments}
    rows = []
    for seed in range(repeats):
        for dtype_name, dtype in DTYPES.items():
            for spread in (1.0, 12.0):
                counted = seed % 2 == 1 and "prefill_tokens_with_context" in accepts
                case = {"dtype": dtype_name, "spread": spread, "counted": counted}
                rows.append(case | _compare(op, seed, dtype, spread, counted))
    return {"op": name, "schema": str(op._schema), "cases": rows}


def _compare(op, seed: int, dtype: torch.dtype, spread: float, counted: bool) -> dict:
    torch.manual_seed(seed)
    tokens, heads, size = (2048, 513, 1)[seed % 3], (16, 128, 8)[seed % 3], (128, 192, 64)[seed % 3]
    prefix, suffix = (torch.randn(tokens, heads, size, device="cuda").to(dtype) for _ in "ps")
    prefix_lse, suffix_lse = (torch.randn(heads, tokens, device="cuda") * spread for _ in "ps")
    kind = torch.randint(8, (heads, tokens), device="cuda")  # 0, 1: prefix empty; 2: suffix empty; 3: both; else neither
    prefix_lse.masked_fill_((kind == 0) | (kind == 3), -math.inf).masked_fill_(kind == 1, math.inf)
    suffix_lse.masked_fill_((kind == 2) | (kind == 3), -math.inf)
    inputs = {"prefix_output": prefix, "prefix_lse": prefix_lse, "suffix_output": suffix, "suffix_lse": suffix_lse}
    if counted:
        inputs["prefill_tokens_with_context"] = n = tokens // 2
        kind[:, n:] = 4
    ours, theirs = ({"output": torch.empty_like(prefix), "output_lse": torch.empty_like(prefix_lse)} for _ in "ot")
    merge_attn_states(**ours, **inputs)
    optional = {a.name: None for a in op._schema.arguments} | theirs | inputs
    op(**optional)
    row_kind = kind.t()[:, :, None].expand_as(prefix)
    groups = {"neither empty": (4, 8), "prefix empty": (0, 2), "suffix empty": (2, 3), "both empty": (3, 4)}
    result = {}
    for group, (low, high) in groups.items():
        for part, of in (("output", row_kind), ("output_lse", kind)):
            rows = (of >= low) & (of < high)
            a, b = ours[part][rows], theirs[part][rows]
            width = {2: torch.int16, 4: torch.int32}[a.element_size()]
            unequal = a.view(width) != b.view(width)
            result[f"{group}: {part}"] = {
                "elements": a.numel(),
                "unequal bits": int(unequal.sum()),
                "unequal numbers": int((unequal & (a != b)).sum()),
            }
    return {"tokens": tokens, "heads": heads, "size": size, "rows": result}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--initcheck", action="store_true", help="only the merge, for compute-sanitizer --tool initcheck")
    parser.add_argument("--control", action="store_true", help="with --initcheck: without the token count")
    parser.add_argument("--out", type=Path, help="folder for gpu_prefill_merge.json")
    parser.add_argument("--peers", type=Path, help="sources of the engines, as scripts/bench/kernels.py --fetch writes them")
    parser.add_argument("--repeats", type=int, default=100, help="timed runs per row (default: %(default)s)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("attnfix: no CUDA GPU here", file=sys.stderr)
        return 1
    if args.initcheck:
        initcheck(args.control)
        return 0
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "initcheck": None,
        "bits": bits(6, args.peers),
        "costs": costs(args.repeats),
    }
    if shutil.which("compute-sanitizer"):
        report["initcheck"] = {"counted": sanitized(control=False), "control": sanitized(control=True)}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "gpu_prefill_merge.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0 if _print(report) else 1


def _print(report: dict) -> bool:
    """Show the report; whether every check that could be made holds."""
    holds = True
    print(f"{report['device']}, torch {report['torch']}")
    if runs := report["initcheck"]:
        counted, control = runs["counted"], runs["control"]
        holds = counted["ran"] and control["ran"] and counted["errors"] == 0 and control["in_merge"] > 0
        for name, run in (("tokens with context counted", counted), ("control, not counted", control)):
            print(f"initcheck, {name}: {run['errors']} errors, {run['in_merge']} reads in the merge; ran: {run['ran']}")
    else:
        print("initcheck: not run, compute-sanitizer is not installed")
    compared = report["bits"]
    if compared["op"] is None:
        print(f"bits against vLLM's op: not compared ({compared['why']})")
    else:
        print(f"bits against the op of {compared['op']}, {len(compared['cases'])} cases")
        print(f"{'rows':<32}{'elements':>14}{'unequal bits':>14}{'unequal numbers':>17}")
        for group, columns in compared["cases"][0]["rows"].items():
            sums = [sum(case["rows"][group][column] for case in compared["cases"]) for column in columns]
            print(f"{group:<32}{sums[0]:>14}{sums[1]:>14}{sums[2]:>17}")
            # Both empty: that op copies the prefix, whatever it is; attnfix's says 0
            holds = holds and (sums[2] == 0 or group.startswith("both empty"))
    print(f"{'work (bf16)':<48}{'MB':>9}{'µs':>9}{'p10-p90':>16}")
    for row in report["costs"]:
        spread = f"{row['us_p10']:.1f}-{row['us_p90']:.1f}"
        print(f"{row['work']:<48}{row['bytes'] / 1e6:>9.1f}{row['us']:>9.1f}{spread:>16}")
    return holds


if __name__ == "__main__":
    sys.exit(main())
