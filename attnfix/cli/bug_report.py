"""`attnfix report`: one JSON bundle for a bug report. What it must not hold it never reads, or `scrub` takes out."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from attnfix.compat import untrusted
from attnfix.compat.arming import switches
from attnfix.compat.engines import ENGINES, installed_root
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger, source_files
from attnfix.patches.catalogue import FIXES

from . import probe, status
from .errors import CliError
from .output import print_json, print_line
from .redact import ELSEWHERE, Scrub

NAME = "report"
BRIEF = "one JSON bundle for a bug report, without secrets"
HELP = (
    "One JSON bundle for a bug report: versions, digests, states, other patchers, GPU. No environment values but attnfix's own "
    "switches, no host names, no paths outside the environment."
)
EXAMPLE = "attnfix report -o report.json --probe stock.json --probe patched.json"

#: Distributions whose versions a verdict, a kernel or a proof may depend on
_VERSIONS = ("sglang", "vllm", "sgl-kernel", "torch", "triton", "flashinfer-python", "flash-attn", "transformers", "numpy",
             "packaging", "rich", "setproctitle", "ray")  # fmt: skip
#: Distributions that replace other people's functions at run time, by the beginnings of their names
_PATCHERS = ("ddtrace", "opentelemetry-instrumentation", "opentelemetry-distro", "kvcached", "newrelic", "elastic-apm",
             "sentry-sdk", "lmcache", "unsloth", "liger-kernel", "vllm-ascend", "scout-apm", "torch-memory-saver",
             "patchy")  # fmt: skip
_PLUGINS = ("vllm.general_plugins", "vllm.platform_plugins", "sglang.srt.plugins")
_PTH_LIMIT = 16 << 20  # bytes
_PATHS = ("ATTNFIX_RUN_DIR", "ATTNFIX_CACHE_DIR")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it there; default: standard output, -")
    parser.add_argument(
        "--probe", metavar="FILE", action="append", default=[], help="take a result along that probe saved (repeatable)"
    )


def run(options: argparse.Namespace) -> int:
    made = bundle() | {"probes": [probe.for_report(path) for path in options.probe]}
    if options.output in (None, Path("-")):
        print_json(made)
        return 0
    try:
        with open(os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(made, file, indent=2)
    except OSError as error:
        raise CliError(f"the report cannot be written: {error.strerror}: {options.output}") from error
    if options.json:
        print_json({"written": str(options.output)})
    else:
        print_line(f"{options.output}: read it before you send it")
    return 0


def bundle() -> dict[str, Any]:
    """Everything the command prints. Imports no engine, starts nothing but nvidia-smi."""
    found = status.collect()
    roots = {name: root for name, engine in ENGINES.items() if (root := installed_root(engine))}
    hosts = sorted({process["host"] for process in found["processes"]})
    scrubbed: dict[str, Any] = Scrub(roots)(
        {
            "attnfix": found["attnfix"],
            "active": found["active"],
            "reason": found["reason"],
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "os": " ".join((platform.system(), platform.release(), platform.machine(), *platform.libc_ver())),
            "versions": _versions(),
            "engines": found["engines"],
            "gpu": gpus(),
            "switches": own_switches(),
            "fixes": [{**row, **_evidence(fix, roots.get(fix.engine))} for fix, row in zip(FIXES, found["fixes"])],
            "processes": [{**process, "host": f"host {hosts.index(process['host']) + 1}"} for process in found["processes"]],
            "unrecorded": found["unrecorded"],
            "missing": [sentence for sentence in found["missing"] if not sentence.startswith("ATTNFIX")],
            "warnings": [sentence for sentence in found["warnings"] if not sentence.startswith("ATTNFIX")],
            "patchers": patchers(found["processes"]),
        }
    )
    return scrubbed


def _versions() -> dict[str, str | None]:
    installed = {_name(each): each.version for each in distributions()}
    return {name: installed.get(name) for name in _VERSIONS}


def _name(distribution: Any) -> str:
    return (distribution.metadata["Name"] or "").lower().replace("_", "-")


def _evidence(fix: Fix, root: Path | None) -> dict[str, Any]:
    """What the gate saw: the release whose code this is and the digest of each witness."""
    if root is None:
        return {}
    try:
        found = judge.digests(fix, source_files.Sources(root))
    except (OSError, SyntaxError, ValueError, ledger.LedgerError) as error:
        return {"witnesses": f"{type(error).__name__}: {error}"}
    verdict = judge.judge(fix, root)
    witnesses = {str(place): digest and digest[:16] for place, digest in zip(fix.code_paths, found)}
    return {"release": verdict.release, "code": verdict.code, "witnesses": witnesses}


def own_switches() -> dict[str, str]:
    """The variables of attnfix that are set, as far as they are read: not a path, not a value that is none of ours."""
    known = {*switches.GENERAL, *switches.RENAMED, *(fix.switch for fix in FIXES)}
    told, refusal = {}, switches.refused(FIXES)
    for name in sorted(known & os.environ.keys()):
        unread = any(sentence.startswith(f"{name}=") for sentence in switches.complaints(FIXES, {name: os.environ[name]}))
        unread = unread or (refusal is not None and refusal.reason.startswith(f"{name} "))
        told[name] = ELSEWHERE if name in _PATHS else "(not read)" if unread else os.environ[name]
    return told


def patchers(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Who else changes code here: packages known for it, plugins of the engines, hooks at interpreter start, and the conflicts
    that running processes have seen."""
    conflicts = {row["reason"]: row["fix"] for process in processes for row in process["fixes"] if row["state"] == "conflict"}
    known, plugins = {}, []
    for each in distributions():
        if _name(each).startswith(_PATCHERS):
            known[_name(each)] = each.version
        plugins += [f"{_name(each)}: {point.group}" for point in each.entry_points if point.group in _PLUGINS]
    return {
        "installed": known,
        "engine plugins": sorted(set(plugins)),
        "at start": sorted(set(_at_start())),
        "conflicts": [{"fix": fix, "reason": reason} for reason, fix in conflicts.items()],
    }


def _at_start() -> Iterator[str]:
    """Code that runs before any program: `.pth` files with an import line, sitecustomize, usercustomize."""
    for entry in filter(None, sys.path):
        for path in Path(entry).glob("*.pth"):
            with suppress(OSError):
                lines = untrusted.read(path, _PTH_LIMIT, follow=True).decode(errors="replace").splitlines()
                if any(line.startswith(("import ", "import\t")) for line in lines):
                    yield path.name
    for name in ("sitecustomize", "usercustomize"):
        if name in sys.modules:
            yield f"{name}: {getattr(sys.modules[name], '__file__', None)}"


def gpus() -> dict[str, Any]:
    """Names and driver by nvidia-smi, else by what the driver says in /proc; `absent` where neither answers."""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=20, check=True)
        rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
        if rows:
            return {"gpus": [", ".join(row[:-1]) for row in rows], "driver": rows[0][-1]}
    driver = Path("/proc/driver/nvidia")
    with suppress(OSError):
        models = [_model(path) for path in sorted(driver.glob("gpus/*/information"))]
        return {"gpus": models, "driver": (driver / "version").read_text().splitlines()[0]}
    return {"gpus": "absent: nvidia-smi does not answer, and no driver is loaded", "driver": None}


def _model(path: Path) -> str:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key == "Model"), "unknown")
