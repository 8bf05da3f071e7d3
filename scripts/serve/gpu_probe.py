#!/usr/bin/env python3
"""Serves tiny models over HTTP on this machine's GPU, stock (ATTNFIX=0) and with attnfix merely installed, and lets
`attnfix probe` ask each server.

    python -m scripts.serve.gpu_probe --case vllm-order
        vLLM 0.24.0-0.26.0, MLA: vllm.mla-context-order is broken in stock
    python -m scripts.serve.gpu_probe --case vllm-dense, vllm-fp8, vllm-hybrid
        a Llama, one with an FP8 cache, a Qwen3-Next with speculation
    python -m scripts.serve.gpu_probe --case sglang-lse
        sglang 0.5.13-0.5.23, MLA on FlashInfer: sglang.lse-log-base
    python -m scripts.serve.gpu_probe --case sglang-windows, sglang-dense
        Gemma 2 on FlashInfer: sglang.flashinfer-swa-prefill; a Llama

Needs one GPU, the engine, attnfix and httpx, installed or on PYTHONPATH, attnfix so that its .pth file is processed. No
network. About three minutes a case: both servers run at once. `--times N` asks each of them N times: if healthy, how
often it is called broken. `--stock-only` where no fix is expected. Each case is merged into
OUT/e2e-<gpu>-<engine>-<release>.json. Exits 1 where a verdict is not the expected one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.serve import (
    e2e,
    e2e_http,
    e2e_sglang,
    e2e_vllm,
    gpu_e2e_sglang,
    sglang_windows,
    tiny_deepseek,
    tiny_gemma,
    tiny_llama,
    tiny_qwen,
    vllm_hybrid,
)
from scripts.serve.e2e import PATCHED, STOCK

BROKEN, HOLDS = "broken", "holds"
_LAUNCH = {
    "vllm": ["-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--served-model-name", "tiny"],
    "sglang": ["-m", "sglang.launch_server", "--model-path", "{model}", "--enable-metrics"],
}
_FLASHINFER = {"attention_backend": "flashinfer"}


@dataclass(frozen=True)
class Case:
    """stock, patched: the verdict that is expected of each; None: none is. length: tokens of a prompt. on: fixes to turn on,
    which are off by default."""

    engine: str
    make: Callable[[Path], Path]
    settings: dict[str, Any]
    stock: str | None = HOLDS
    patched: str | None = HOLDS
    length: int = 2500
    variables: dict[str, str] = field(default_factory=dict)
    on: tuple[str, ...] = ()


_VLLM = e2e_vllm.SHARED | {"max_model_len": 16384, "max_num_batched_tokens": 2048}
CASES = {
    "vllm-order": Case("vllm", tiny_deepseek.make, _VLLM | {"enforce_eager": True}, BROKEN, length=6000),
    "vllm-dense": Case("vllm", tiny_llama.make, _VLLM),
    "vllm-fp8": Case("vllm", tiny_llama.make_calibrated, _VLLM | {"kv_cache_dtype": "fp8"}),
    "vllm-hybrid": Case("vllm", tiny_qwen.make, _VLLM | vllm_hybrid._SETTINGS, None, None, on=vllm_hybrid.CACHE),
    "sglang-lse": Case(
        "sglang", tiny_deepseek.make, gpu_e2e_sglang.LONG, BROKEN, length=9000, variables=gpu_e2e_sglang.CAPACITY
    ),
    "sglang-windows": Case("sglang", tiny_gemma.make, sglang_windows._SETTINGS | _FLASHINFER, BROKEN),
    "sglang-dense": Case("sglang", tiny_llama.make, e2e_sglang.SHARED | {"cuda_graph_max_bs": 16}),
}


def launch(case: Case, model: Path) -> list[str]:
    words = [word.replace("{model}", str(model)) for word in _LAUNCH[case.engine]]
    return [*words, "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", "{port}", *_flags(case)]


def _flags(case: Case) -> list[str]:
    """Settings as a command line has them; an object is JSON there. A setting that this release calls otherwise is renamed."""
    settings = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in case.settings.items()}
    if case.engine == "sglang":
        from sglang.srt.server_args import ServerArgs

        renamed = e2e_sglang.RENAMED
        settings = {renamed[name] if hasattr(ServerArgs, renamed.get(name, "-")) else name: to for name, to in settings.items()}
    return e2e_http.flags(settings)


def side(name: str, case: Case, model: Path, out: Path, options: Any) -> dict[str, Any]:
    """One server, and what the probe says of it each time."""
    own = {"ATTNFIX": "0"} if name == STOCK else {vllm_hybrid.BY_ID[fix].switch: "1" for fix in case.on}
    variables = (e2e_vllm.VARIABLES if case.engine == "vllm" else {}) | case.variables | own
    with e2e_http.Http(launch(case, model), f"{options.case}-{name}", out / "logs", variables) as server:
        e2e.say(f"{name}: the HTTP server is up")
        runs = [_probe(server, case, model, out / f"probe-{options.case}-{name}.json", options) for _ in range(options.times)]
        e2e.say(f"{name}: {', '.join(run.get('verdict', run.get('error', '?')) for run in runs)}")
        return {"environment": own, "runs": runs, "processes": server.status()}


def _probe(server: e2e_http.Http, case: Case, model: Path, saved: Path, options: Any) -> dict[str, Any]:
    """The command as a user types it."""
    command = [sys.executable, "-m", "attnfix", "probe", server.address, "--json", "--save", str(saved)]
    command += ["--config", str(model), "--length", str(case.length), "--prompts", str(options.prompts)]
    command += ["--budget", f"8000000,{options.seconds}"]
    asked = subprocess.run(command, env=e2e.environment(), capture_output=True, text=True)
    try:
        return {"exit": asked.returncode, **json.loads(asked.stdout)}
    except ValueError:
        return {"exit": asked.returncode, "error": asked.stderr[-2000:]}


def lines(found: dict[str, Any]) -> list[str]:
    """What a person reads: each relation on each side."""
    told = []
    for name, one in found.items():
        for run in one["runs"]:
            told.append(f"{name}: {run.get('verdict')}, exit {run['exit']}: {run.get('sentence', run.get('error'))}")
            for row in run.get("relations", ()):
                told.append(
                    f"  {row['relation']:<20}{row['verdict']:<9}worst {row['worst']} median {row['median']} "
                    f"floor {run['floor']:.3g} margin {run['margin']:.3g}: {row['reason']}"
                )
        told += [f"  {line}" for line in e2e.activity(one["processes"])]
    return told


def main() -> int:
    parser = e2e.parser(__doc__, list(CASES))
    parser.add_argument("--times", type=int, default=1, help="how often each server is asked")
    parser.add_argument("--prompts", type=int, default=8, help="prompts for each relation")
    parser.add_argument("--seconds", type=int, default=120, help="for one run of the probe")
    parser.add_argument("--stock-only", action="store_true", help="no patched server")
    options = parser.parse_args()
    e2e.require_attnfix()
    case, out = CASES[options.case], options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        model = case.make(Path(scratch, "model"))
        names = [STOCK] if options.stock_only else [STOCK, PATCHED]
        with ThreadPoolExecutor(1 if options.one_by_one else len(names)) as pool:
            runs = {name: pool.submit(side, name, case, model, out, options) for name in names}
            found = {name: run.result() for name, run in runs.items()}
    expected = {STOCK: case.stock, PATCHED: case.patched}
    wrong = [
        f"{name}: {run.get('verdict', run.get('error'))}, expected {expected[name]}"
        for name, one in found.items()
        for run in one["runs"]
        if expected[name] and run.get("verdict") != expected[name]
    ]
    result = {"launch": launch(case, Path("MODEL")), "length": case.length, "seconds": round(e2e.elapsed()), "sides": found}
    e2e.write(out, e2e.machine(case.engine), f"probe {options.case}", result | {"failures": wrong})
    print("\n".join([*lines(found), *(wrong or ["all checks hold"])]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
