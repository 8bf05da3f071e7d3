#!/usr/bin/env python3
"""Serves tiny models over HTTP on this machine's GPU, stock (ATTNFIX=0) and with attnfix merely installed, and lets
`attnfix probe` ask each server.

    python -m scripts.serve.gpu_probe --case vllm-order
        vLLM 0.24.0-0.26.0, MLA: vllm.mla-context-order is broken in stock
    python -m scripts.serve.gpu_probe --case vllm-hybrid --seconds 300
        a Qwen3-Next with speculation and cached prefixes, its two fixes on
    python -m scripts.serve.gpu_probe --case vllm-mamba2 --seconds 200
        the same bug in a NemotronH. It has no experts, so that smaller faults are told from its own noise
    python -m scripts.serve.gpu_probe --case sglang-lse
        sglang 0.5.13-0.5.23, MLA on FlashInfer: sglang.lse-log-base
    python -m scripts.serve.gpu_probe --case sglang-windows
        Gemma 2 on FlashInfer: sglang.flashinfer-swa-prefill
    python -m scripts.serve.gpu_probe --case sglang-window-decode --seconds 300
        Gemma 2 on Triton: sglang.triton-window-decode
    python -m scripts.serve.gpu_probe --case vllm-healthy
    python -m scripts.serve.gpu_probe --case sglang-healthy
        each of HEALTHY, stock alone: configurations of which no bug is known. Written for vLLM 0.33.0 and sglang 0.5.23
    python -m scripts.serve.gpu_probe --case vllm-moe vllm-mla
        several, by name

Needs one GPU of the Hopper generation with 60 GB free, the engine, attnfix and httpx, installed or on PYTHONPATH, attnfix so
that its .pth file is processed. No network. One or two minutes a case, and `--at-once` of them run at the same time, each
server with a small share of the GPU's memory; the first with FlashInfer on a machine takes three more,
and with a Gemma six, for it compiles: run that one alone.
`--times N` asks each server N times; the default is that of the case. `--minutes N`: no case begins later.

A case that does not start, or ends, fails alone. Each is merged into OUT/e2e-<gpu>-<engine>-<release>.json as soon as it is
done, with the figure of every prompt. Exits 1 where a verdict is not the expected one.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnfix.cli.probe import RELATIONS
from scripts.serve import (
    e2e,
    e2e_http,
    e2e_sglang,
    e2e_vllm,
    gpu_e2e_sglang,
    sglang_verify,
    sglang_windows,
    tiny_deepseek,
    tiny_gemma,
    tiny_llama,
    tiny_moe,
    tiny_nemotron,
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
_PATIENCE_S = 60  # beyond the budget, for a question that is being asked when it ends


@dataclass(frozen=True)
class Case:
    """stock, patched: the verdict that is expected of each; None: none is. length: tokens of a prompt. on: fixes to turn on,
    which are off by default. times: how often its server is asked. alone: no patched server. relations: what is asked; none:
    all."""

    engine: str
    make: Callable[[Path], Path]
    settings: dict[str, Any]
    stock: str | None = HOLDS
    patched: str | None = HOLDS
    length: int = 2500
    variables: dict[str, str] = field(default_factory=dict)
    on: tuple[str, ...] = ()
    times: int = 1
    alone: bool = False
    relations: tuple[str, ...] = ()


_VLLM = e2e_vllm.SHARED | {"max_model_len": 16384, "max_num_batched_tokens": 2048}
_EAGER = _VLLM | {"enforce_eager": True, "enable_prompt_tokens_details": True}
_NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
#: Small, so that several servers share a GPU; graphs for decodes are on by default
_SGLANG = e2e_sglang.SHARED | {
    "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 8, "max_running_requests": 16,
    "chunked_prefill_size": 2048,
}  # fmt: skip
_GEMMA = functools.partial(tiny_gemma.make, repeats=False)  # what attention chose is then what it says
_GRANITE = functools.partial(tiny_llama.make, granite=True)


def _backend(name: str) -> dict[str, str]:
    return {"attention_backend": name}


#: One bug each, which stock has; `vllm-hybrid` by release
CASES = {
    "vllm-order": Case("vllm", tiny_deepseek.make, _VLLM | {"enforce_eager": True}, BROKEN, length=6000),
    "vllm-hybrid": Case(
        "vllm",
        tiny_qwen.make,
        _VLLM | vllm_hybrid.SETTINGS | {"enable_prompt_tokens_details": True},
        None,
        None,
        on=vllm_hybrid.CACHE,
    ),
    # In company the patched server finds nothing in its cache: what stock finds there is wrong
    "vllm-mamba2": Case(
        "vllm",
        tiny_nemotron.make,
        _EAGER | vllm_hybrid.SETTINGS | vllm_hybrid.MAMBA2,
        BROKEN,
        on=vllm_hybrid.CACHE,
        relations=tuple(name for name in RELATIONS if name != "cached, in company"),
    ),
    "sglang-lse": Case(
        "sglang", tiny_deepseek.make, gpu_e2e_sglang.LONG, BROKEN, length=9000, variables=gpu_e2e_sglang.CAPACITY
    ),
    "sglang-windows": Case("sglang", _GEMMA, sglang_windows.SETTINGS | _FLASHINFER, BROKEN),
    # One next turn in ten moves: too few for a verdict of one run
    "sglang-window-decode": Case(
        "sglang", _GEMMA, _SGLANG | _backend("triton"), None, on=("sglang.triton-window-decode",), times=5
    ),
}
#: No bug is known of these: dense, MLA, windows, hybrid, experts, FP8 caches, graphs, speculation, several backends
HEALTHY = {
    "vllm-dense": Case("vllm", tiny_llama.make, _VLLM | {"enforce_eager": True}, times=5),
    "vllm-mla": Case("vllm", tiny_deepseek.make, _EAGER, times=5),
    "vllm-windows": Case("vllm", _GEMMA, _EAGER),
    "vllm-moe": Case("vllm", tiny_moe.make, _EAGER),
    "vllm-fp8": Case("vllm", tiny_llama.make_calibrated, _EAGER | {"kv_cache_dtype": "fp8"}),
    "vllm-graphs": Case("vllm", tiny_llama.make, _VLLM | {"compilation_config": e2e_vllm.GRAPHS}),
    "vllm-ngram": Case("vllm", tiny_llama.make, _EAGER | {"speculative_config": _NGRAM}),
    "vllm-triton": Case("vllm", tiny_llama.make, _EAGER | _backend("TRITON_ATTN")),
    "vllm-mla-fp8": Case("vllm", tiny_deepseek.make, _EAGER | {"kv_cache_dtype": "fp8"}),
    "vllm-recurrent": Case("vllm", tiny_qwen.make, _EAGER | {
        "max_model_len": 8192, "additional_config": vllm_hybrid.SETTINGS["additional_config"],
    }),
    "sglang-dense": Case("sglang", _GRANITE, _SGLANG | _backend("fa3"), times=5),
    "sglang-gemma-fa3": Case("sglang", _GEMMA, _SGLANG | _backend("fa3"), times=5),
    "sglang-mla": Case("sglang", tiny_deepseek.make, _SGLANG | _backend("fa3")),
    "sglang-moe": Case("sglang", tiny_moe.make, _SGLANG | _backend("fa3") | {"moe_runner_backend": "triton"}),
    "sglang-fp8": Case("sglang", _GRANITE, _SGLANG | _backend("triton") | {"kv_cache_dtype": "fp8_e4m3"}),
    "sglang-eager": Case("sglang", _GRANITE, _SGLANG | _backend("triton") | {"disable_cuda_graph": True}),
    "sglang-recurrent": Case("sglang", tiny_qwen.make, _SGLANG | _backend("triton") | {"max_mamba_cache_size": 64}),
    "sglang-flashinfer": Case("sglang", _GRANITE, _SGLANG),
    "sglang-ngram": Case("sglang", _GRANITE, _SGLANG | sglang_verify.NGRAM),
}  # fmt: skip
CASES |= {name: dataclasses.replace(case, alone=True) for name, case in HEALTHY.items()}
GROUPS = {f"{engine}-healthy": [name for name in HEALTHY if name.startswith(engine)] for engine in _LAUNCH}


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


def side(name: str, label: str, case: Case, model: Path, out: Path, options: Any) -> dict[str, Any]:
    """One server, and what the probe says of it each time. Ends where one of the servers that run at once ends."""
    own = {"ATTNFIX": "0"} if name == STOCK else {vllm_hybrid.BY_ID[fix].switch: "1" for fix in case.on}
    variables = (e2e_vllm.VARIABLES if case.engine == "vllm" else {}) | case.variables | own
    label = f"{label}-{name}"
    with e2e_http.Http(launch(case, model), label, out / "logs", variables) as server:
        e2e.say(f"{label}: the HTTP server is up")
        runs: list[dict[str, Any]] = []
        for at in range(options.times or case.times):
            if at and e2e.elapsed() > 60 * options.minutes:
                break
            runs.append(_probe(server, case, model, out / f"probe-{label}.json", options))
            e2e.say(f"{label}: {runs[-1].get('verdict', 'no verdict')}")
            if runs[-1].get("died"):
                break
        return {"environment": own, "runs": runs, "processes": server.status()}


def _probe(server: e2e_http.Http, case: Case, model: Path, saved: Path, options: Any) -> dict[str, Any]:
    """The command as a user types it."""
    command = [sys.executable, "-m", "attnfix", "probe", server.address, "--json", "--save", str(saved)]
    command += ["--config", str(model), "--length", str(case.length), "--prompts", str(options.prompts)]
    command += ["--budget", f"8000000,{options.seconds}", *(f"--relation={name}" for name in case.relations)]
    try:
        asked = subprocess.run(
            command, env=e2e.environment(), capture_output=True, text=True, timeout=options.seconds + _PATIENCE_S
        )
        return {"exit": asked.returncode, **json.loads(asked.stdout)}
    except subprocess.TimeoutExpired:
        return {"exit": None, "error": f"no end within {options.seconds + _PATIENCE_S} seconds"}
    except ValueError:
        return {"exit": asked.returncode, "error": asked.stderr[-2000:]}


class Whole:
    """All cases that are asked for: their models, each made once, and the evidence file."""

    def __init__(self, options: Any, scratch: Path):
        self.options, self.scratch, self.out = options, scratch, options.out.resolve()
        self._models: dict[Any, Path] = {}
        self._making, self._writing = threading.Lock(), threading.Lock()
        self._about: dict[str, dict[str, Any]] = {}

    def __call__(self, at: int, label: str) -> list[str]:
        """One case: what does not hold."""
        case, began = CASES[label], time.monotonic()
        time.sleep(2 * at if at < self.options.at_once else 0)  # so that no two look for a free port at once
        if e2e.elapsed() > 60 * self.options.minutes:
            return [f"{label}: not run, the time is up"]
        names = [STOCK] if self.options.stock_only or case.alone else [STOCK, PATCHED]
        model = self._model(case)
        with ThreadPoolExecutor(1 if self.options.one_by_one else len(names)) as pool:
            found = dict(zip(names, pool.map(lambda name: self._side(name, label, case, model), names)))
        wrong = failures(label, case, found)
        result = {
            "launch": launch(case, Path("MODEL")), "length": case.length, "relations": case.relations,
            "date": time.strftime("%Y-%m-%d"),
            "seconds": round(time.monotonic() - began), "servers_at_once": self.options.at_once,
            "config": json.loads((model / "config.json").read_text()), "sides": found, "failures": wrong,
        }  # fmt: skip
        with self._writing:
            if case.engine not in self._about:
                self._about[case.engine] = e2e.machine(case.engine)
            e2e.write(self.out, self._about[case.engine], f"probe {label}", result)
            print("\n".join([f"{label}:", *lines(found), *wrong]), flush=True)
        return wrong

    def _model(self, case: Case) -> Path:
        with self._making:
            if case.make not in self._models:
                self._models[case.make] = case.make(self.scratch / f"model-{len(self._models)}")
            return self._models[case.make]

    def _side(self, name: str, label: str, case: Case, model: Path) -> dict[str, Any]:
        """A server that does not start is a result, too."""
        try:
            return side(name, label, case, model, self.out, self.options)
        except (Exception, SystemExit) as error:
            log = self.out / "logs" / f"{label}-{name}.log"
            said = e2e.errors(log.read_text(errors="replace")) if log.exists() else []
            e2e.say(f"{label}-{name}: {error}")
            return {"error": said[-1] if said else f"{type(error).__name__}: {str(error).splitlines()[0]}", "runs": []}


def failures(label: str, case: Case, found: dict[str, Any]) -> list[str]:
    """One sentence for each verdict that is not the expected one."""
    expected = {STOCK: case.stock, PATCHED: case.patched}
    wrong = []
    for name, one in found.items():
        told = [run.get("verdict", run.get("error")) for run in one["runs"]] or [one.get("error", "not asked")]
        wrong += [f"{label}, {name}: {said}, expected {expected[name]}" for said in told if said != (expected[name] or said)]
        if not one["runs"] and not expected[name]:
            wrong.append(f"{label}, {name}: {told[0]}")
    return wrong


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
        told += [f"  {line}" for line in e2e.activity(one.get("processes", []))]
    return told


def main() -> int:
    parser = e2e.parser(__doc__, [*CASES, *GROUPS])
    case = next(action for action in parser._actions if action.dest == "case")
    case.nargs, case.metavar = "+", "NAME"
    parser.add_argument("--times", type=int, default=0, help="how often each server is asked")
    parser.add_argument("--prompts", type=int, default=8, help="prompts for each relation")
    parser.add_argument("--seconds", type=int, default=90, help="for one run of the probe")
    parser.add_argument("--at-once", type=int, default=4, help="cases that run at the same time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case begins later")
    parser.add_argument("--stock-only", action="store_true", help="no patched server")
    options = parser.parse_args()
    e2e.require_attnfix()
    names = list(dict.fromkeys(name for each in options.case for name in GROUPS.get(each, [each])))
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch, ThreadPoolExecutor(options.at_once) as pool:
        wrong = [one for some in pool.map(Whole(options, Path(scratch)), range(len(names)), names) for one in some]
    print("\n".join(wrong or ["all checks hold"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
