"""Which part of an engine a process is, and which rank: from what it is called, at no cost.

Both engines name their processes: by title (`VLLM::Worker_TP1`, `sglang::scheduler_DP0_TP1`), which they set after most of
their modules are loaded, and before that by the name and the target of the multiprocessing child.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

UNKNOWN = "process"
SERVER = "server"

#: The engines' own words, in titles, names and targets of processes
_WORDS = {
    "APIServer": SERVER,
    "ApiServer": SERVER,
    "EngineCore": "engine core",
    "Worker": "worker",
    "VllmWorker": "worker",
    "RayWorkerWrapper": "worker",
    "DPCoordinator": "DP coordinator",
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "detokenizer_router": "detokenizer router",
    "tokenizer_worker": "tokenizer",
    "data_parallel_controller": "DP controller",
    "run_api_server_worker_proc": SERVER,
    "run_engine_core": "engine core",
    "worker_main": "worker",
    "run_scheduler_process": "scheduler",
    "run_detokenizer_process": "detokenizer",
    "run_data_parallel_controller_process": "DP controller",
}
_RANK = r"[_-]((?:ATTN_CP|MOE_DP|DCP|PCP|CP|DP|PP|TP|EP)?\d+)"
_NAME = re.compile(rf"(?P<word>[A-Za-z_]+?)(?P<rank>(?:{_RANK})*)(?:[.:].*)?")
_PYTHON = re.compile(r"python[\d.]*t?$")
#: Options of Python's
_WITH_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_TITLE = re.compile(r"(?P<prefix>[\w-]+)::(?P<name>\S+)")


class Role(NamedTuple):
    """`rank` in the engine's words where it has some ("DP0 TP1"), else a number; None where nothing tells."""

    name: str = UNKNOWN
    rank: str | None = None


def of_this_process() -> Role:
    process = multiprocessing.current_process()
    target = getattr(getattr(process, "_target", None), "__name__", None)
    known = [of_title(title(os.getpid())), _of_name(process.name), _of_name(target), of_command(sys.orig_argv)]
    name = next((role.name for role in known if role.name != UNKNOWN), UNKNOWN)
    ranks = [known[0].rank, _distributed_rank(), os.environ.get("RANK"), os.environ.get("LOCAL_RANK"), known[1].rank]
    return Role(name, next((rank for rank in ranks if rank), None))


def title(pid: int) -> str:
    """What a process calls itself now (Linux): its title, or its command line with blanks between."""
    return " ".join(command_line(pid))


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace").split("\0")
    except OSError:
        return []


def of_title(text: str) -> Role:
    """Role from a title an engine has set. A word that is not known here is the engine's own: it is kept."""
    found = _TITLE.fullmatch(text.strip())
    if not found:
        return Role()
    role = _of_name(found["name"])
    return role if role.name != UNKNOWN else Role(found["name"], role.rank)


def of_command(words: Sequence[str]) -> Role:
    return Role(SERVER) if engine_served_by(words) else Role()


def engine_served_by(words: Sequence[str]) -> str | None:
    """The engine whose server a command line is: `vllm serve …`, `python -m sglang.launch_server …`.

    A launcher has such a line among its own arguments, and is none.
    """
    program = list(words)
    if program and _PYTHON.match(Path(program[0]).name):
        del program[0]
        while program and program[0].startswith("-") and program[0] not in ("-m", "-c"):
            del program[: 2 if program[0] in _WITH_A_VALUE else 1]
    if len(program) < 2:
        return None
    word, following = program[:2]
    name = following.partition(".")[0] if word == "-m" else Path(word).name if following == "serve" else ""
    return name if name in ("sglang", "vllm") else None


def engine_titled(text: str) -> str | None:
    """The engine that set this title, unless its operator has renamed the prefix."""
    found = _TITLE.fullmatch(text.strip())
    prefix = found["prefix"].lower() if found else ""
    return prefix if prefix in ("sglang", "vllm") else None


def _of_name(name: str | None) -> Role:
    found = _NAME.fullmatch(name or "")
    if not found or found["word"] not in _WORDS:
        return Role()
    return Role(_WORDS[found["word"]], " ".join(re.findall(_RANK, found["rank"])) or None)


def _distributed_rank() -> str | None:
    """Rank of torch.distributed, where the engine has set it up by now."""
    distributed = sys.modules.get("torch.distributed")
    with suppress(Exception):
        if distributed and distributed.is_initialized():
            return str(distributed.get_rank())
    return None
