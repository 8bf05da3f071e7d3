"""Engines' own HTTP servers, as their users start them: `attnfix status`, the metrics page, and verdicts of `attnfix probe`.

The healthy configurations were written for vLLM 0.33.0 and sglang 0.5.23; no bug is known of them. `probe` needs httpx. Where
FlashInfer compiles kernels, the first case on a machine takes three minutes more, with a Gemma six.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from attnfix.cli.probe import RELATIONS
from tests.gpu.serving import child, models, processes, test_releases, test_sglang, test_vllm
from tests.gpu.serving.cases import GRAPHS, OFF, PATCHED, SHARED, STOCK, on, record
from tests.gpu.serving.conversations import tokens
from tests.gpu.serving.processes import Ended, Http, launch

TIMES, SECONDS = (int(os.environ.get(f"ATTNFIX_GPU_PROBE_{name}", least)) for name, least in (("TIMES", 1), ("SECONDS", 90)))
ROUNDS = 20  # at most; requests that meet in one step are a matter of arrival times


def machine(engine: str) -> dict[str, Any]:
    """What this machine is. Imports the engine."""
    return {"vllm": child.Vllm, "sglang": child.Sglang}[engine]().machine()


def on_page(page: str) -> dict[str, float]:
    """{sample with its labels: value} of attnfix's lines on a metrics page."""
    return {name: float(value) for name, value in re.findall(r"^(attnfix_\S+) (\S+)$", page, re.M)}


def counted(page: Mapping[str, float], fix: str) -> float:
    """Corrections of a fix, in all states."""
    return sum(
        value for name, value in page.items() if name.startswith("attnfix_corrections_total{") and f'fix="{fix}"' in name
    )


def _of_vllm(at: int) -> tuple[str, list[dict[str, Any]]]:
    shared = {"model": "tiny", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    prompts = [prompt for _, _, company in test_vllm.order_prompts(at).values() for prompt in company]  # none is cached yet
    return "/v1/completions", [shared | {"prompt": prompt} for prompt in prompts]


def _of_sglang(at: int) -> tuple[str, list[dict[str, Any]]]:
    draw = random.Random(21)
    prefix, new = tokens(draw, test_sglang.PREFIX), tokens(draw, test_sglang.CACHED_NEW)
    shared = {"sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}}
    return "/generate", [shared | {"input_ids": prefix + (new if at else [])}]  # the second finds the first in the cache


EAGER_VLLM = {"max_model_len": 16384, "max_num_batched_tokens": 2048, "enforce_eager": True}


@pytest.mark.parametrize(
    "engine, fix, settings, variables, bodies",
    [
        ("vllm", test_vllm.ORDER, EAGER_VLLM, {}, _of_vllm),
        ("sglang", test_sglang.LSE, test_sglang.LONG, test_sglang.CAPACITY, _of_sglang),
    ],
    ids=["vllm", "sglang"],
)  # fmt: skip
def test_metrics(
    engine: str, fix: str, settings: dict[str, Any], variables: dict[str, str], bodies: Callable[[int], tuple[str, list]],
    needs: Callable[..., None], out: Path, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The page and `attnfix status` count the same, while the server's processes run."""
    needs(engine, (fix,))
    model = models.make("deepseek")(out / "models/metrics")
    line, requests = launch(engine, model, SHARED[engine] | settings), 0
    with Http(line, "metrics", out / "logs", processes.VARIABLES[engine] | variables) as server:
        first = page = on_page(server.get("/metrics"))
        for at in range(ROUNDS):
            path, sent = bodies(at)
            with ThreadPoolExecutor(len(sent)) as pool:
                list(pool.map(lambda body, path=path: server.post(path, body), sent))
            requests, page = requests + len(sent), on_page(server.get("/metrics"))
            if counted(page, fix):
                break
        records = server.status()
    found = {"requests": requests, "page": {"before": first, "after": page}, "processes": records}
    wrong = failures_of_page(found, fix)
    record(out, machine(engine), "metrics", found | {"launch": line, "failures": wrong}, request.node.nodeid)
    assert not wrong, "\n".join(wrong)


def failures_of_page(found: dict[str, Any], fix: str) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong, on_records = [], processes.corrections(found["processes"]).get(fix, 0)
    if not on_records:
        wrong.append(f"{fix} corrected nothing in {found['requests']} requests")
    if counted(found["page"]["after"], fix) != on_records:
        wrong.append(f"{fix}: the page counts {counted(found['page']['after'], fix):.0f} corrections, the records {on_records}")
    if len(found["processes"]) < 2:
        wrong.append(f"attnfix status shows {len(found['processes'])} processes of a server and its engine")
    if not processes.alive(found["processes"]):
        wrong.append("a process that was serving counts as ended")
    return wrong


# Verdicts

BROKEN, HOLDS = "broken", "holds"


@dataclass(frozen=True)
class Probed:
    """stock, patched: the expected verdict of each; None: any. length: tokens of a prompt. times: how often a server is asked.

    fixes: a release must have one of their bugs; without them, stock alone is asked. relations: all where there are none."""

    name: str
    family: str
    settings: Mapping[str, Any]
    stock: str | None = HOLDS
    patched: str | None = HOLDS
    length: int = 2500
    fixes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    relations: tuple[str, ...] = ()
    made: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def engine(self) -> str:
        return self.name.partition("-")[0]


_VLLM = {"max_model_len": 16384, "max_num_batched_tokens": 2048}
_EAGER = _VLLM | {"enforce_eager": True, "enable_prompt_tokens_details": True}
_NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
_MTP = test_vllm.MTP | {"enable_prompt_tokens_details": True}
#: Small, so that several servers share a GPU; graphs for decodes are on by default
_SGLANG = {
    "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 8, "max_running_requests": 16,
    "chunked_prefill_size": 2048,
}  # fmt: skip
_FA3, _TRITON = _SGLANG | {"attention_backend": "fa3"}, _SGLANG | {"attention_backend": "triton"}
_STATES = (test_vllm.CACHE, test_vllm.UNIFORM)
PROBED = (
    Probed("vllm-order", "deepseek", _VLLM | {"enforce_eager": True}, BROKEN, length=6000, fixes=(test_vllm.ORDER,)),
    Probed("vllm-hybrid", "qwen3-next", _MTP, None, None, fixes=_STATES),
    # In company the patched server finds nothing in its cache: what stock finds there is wrong
    Probed(
        "vllm-mamba2", "nemotron-h", _MTP | test_vllm.MAMBA2 | {"enforce_eager": True}, BROKEN, fixes=_STATES,
        relations=tuple(name for name in RELATIONS if name != "cached, in company"),
    ),
    Probed(
        "sglang-lse", "deepseek", test_sglang.LONG, BROKEN, length=9000, fixes=(test_sglang.LSE,),
        variables=test_sglang.CAPACITY,
    ),
    Probed("sglang-windows", "gemma", test_sglang.WINDOWS | test_sglang.FLASHINFER, BROKEN, fixes=(test_sglang.SWA,)),
    # One next turn in ten moves: too few for a verdict of one run
    Probed("sglang-window-decode", "gemma", _TRITON, None, fixes=(test_sglang.WINDOW_DECODE,), times=5),
    # No bug is known of these
    Probed("vllm-dense", "llama", _VLLM | {"enforce_eager": True}, times=5),
    Probed("vllm-mla", "deepseek", _EAGER, times=5),
    Probed("vllm-windows", "gemma", _EAGER),
    Probed("vllm-moe", "qwen3-moe", _EAGER),
    Probed("vllm-fp8", "llama", _EAGER | {"kv_cache_dtype": "fp8"}, made={"calibrated": True}),
    Probed("vllm-graphs", "llama", _VLLM | {"compilation_config": GRAPHS}),
    Probed("vllm-ngram", "llama", _EAGER | {"speculative_config": _NGRAM}),
    Probed("vllm-triton", "llama", _EAGER | {"attention_backend": "TRITON_ATTN"}),
    Probed("vllm-mla-fp8", "deepseek", _EAGER | {"kv_cache_dtype": "fp8"}),
    Probed("vllm-recurrent", "qwen3-next", _EAGER | test_releases.KINDS["vllm"]["hybrid"][1]),
    Probed("sglang-dense", "granite", _FA3, times=5),
    Probed("sglang-gemma-fa3", "gemma", _FA3, times=5),
    Probed("sglang-mla", "deepseek", _FA3),
    Probed("sglang-moe", "qwen3-moe", _FA3 | {"moe_runner_backend": "triton"}),
    Probed("sglang-fp8", "granite", _TRITON | {"kv_cache_dtype": "fp8_e4m3"}),
    Probed("sglang-eager", "granite", _TRITON | {"disable_cuda_graph": True}),
    Probed("sglang-recurrent", "qwen3-next", _TRITON | {"max_mamba_cache_size": 64}),
    Probed("sglang-flashinfer", "granite", _SGLANG),
    Probed("sglang-ngram", "granite", _SGLANG | test_sglang.NGRAM),
)  # fmt: skip


def asked(case: Probed, server: Http, model: Path, saved: Path) -> dict[str, Any]:
    """`attnfix probe` as a user types it."""
    command = [sys.executable, "-m", "attnfix", "probe", server.address, "--json", "--save", str(saved)]
    command += ["--config", str(model), "--length", str(case.length), "--prompts", "8", "--budget", f"8000000,{SECONDS}"]
    command += [f"--relation={name}" for name in case.relations]
    said = subprocess.run(command, env=processes.environment(), capture_output=True, text=True, timeout=SECONDS + 60)
    try:
        return {"exit": said.returncode, **json.loads(said.stdout)}
    except ValueError:
        return {"exit": said.returncode, "error": said.stderr[-2000:]}


@pytest.mark.parametrize("case", PROBED, ids=str)
def test_probe(case: Probed, needs: Callable[..., None], out: Path, request: pytest.FixtureRequest) -> None:
    needs(case.engine, case.fixes)
    model = models.make(case.family, **case.made)(out / "models" / f"probe-{case.family}{'-'.join(case.made)}")
    line, sides = launch(case.engine, model, SHARED[case.engine] | case.settings), dict[str, Any]()
    began = time.monotonic()
    for name, own in {STOCK: OFF, PATCHED: on(*case.fixes)}.items() if case.fixes else [(STOCK, OFF)]:
        label, variables = f"{case.name}-{name}", processes.VARIABLES[case.engine] | case.variables | own
        try:
            with Http(line, label, out / "logs", variables) as server:
                runs = [asked(case, server, model, out / f"probe-{label}.json") for _ in range(max(TIMES, case.times))]
                sides[name] = {"environment": own, "runs": runs, "processes": server.status()}
        except (Ended, subprocess.TimeoutExpired) as error:  # a server that does not start is a result, too
            sides[name] = {"error": str(error), "runs": []}
    wrong = failures(case, sides)
    seconds = round(time.monotonic() - began)
    found = {"launch": line, "length": case.length, "sides": sides, "failures": wrong, "seconds": seconds}
    record(out, machine(case.engine), f"probe {case.name}", found, request.node.nodeid)
    assert not wrong, "\n".join(wrong)


def failures(case: Probed, sides: Mapping[str, Any]) -> list[str]:
    """One sentence for each verdict that is not the expected one."""
    wrong = []
    for name, side in sides.items():
        expected = case.stock if name == STOCK else case.patched
        told = [run.get("verdict", run.get("error")) for run in side["runs"]] or [side["error"]]
        wrong += [f"{case.name}, {name}: {said}, expected {expected}" for said in told
                  if said not in (BROKEN, HOLDS, "unclear") or expected not in (None, said)]  # fmt: skip
    return wrong
