"""Proof of vllm.swa-admission-crash: requests that are answered on a server whose blocks are all in use.

Spared: servers with room for all requests, requests within the bound, and layers of full attention.
"""

from __future__ import annotations

import hashlib
from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.scheduling import Case, case
from attnfix.patches.lab.vllm.windows import SCHEDULER, Runner, Windowed, Windows

from .wrap import unbound

_MANAGER, _MANAGERS = "vllm.v1.core.kv_cache_manager", "vllm.v1.core.single_type_kv_cache_manager"
_REQUESTS = 14


def _many(server: Runner, prompt: tuple[int, int] = (10, 60), output: tuple[int, int] = (150, 200)) -> None:
    """More requests than there are blocks for."""
    for _ in range(_REQUESTS):
        server.ask(server.draw.randrange(*prompt), server.draw.randrange(*output))


def _long(server: Runner) -> None:
    """Prompts that take several steps."""
    _many(server, (100, 200), (20, 50))


def _short(server: Runner) -> None:
    """Within the bound of a window: its tokens and those of a step."""
    _many(server, (10, 20), (20, 40))


def _served(*layers: str, blocks: int, talk: Any = _many, **more: Any) -> Case:
    sizes: dict[str, Any] = dict(drafts=0, blocks=blocks, max_tokens=32, context=256, max_requests=16)
    return case(talk, layers=layers, **{**sizes, **more})


class Proof(Windowed):
    modules = (_MANAGER, SCHEDULER, _MANAGERS)
    needs = f"{_MANAGERS}:get_manager_for_kv_cache_spec: max_admission_blocks_per_request"
    absent = "a step's blocks are counted without a bound"
    measure = "share of requests that are not answered, since the engine ends"
    bug = (
        _served("full", "window", blocks=40),
        _served("full", "chunk", blocks=40),
        _served("window", blocks=30, ahead=True),
        _served("full", "window", blocks=40, talk=_long, caching=False),
        _served("full", "window", blocks=48, drafts=3),
    )
    spared = (
        _served("full", "window", blocks=4096),
        _served("full", "window", blocks=40, talk=_short),
        _served("full", blocks=40),
    )
    broken = {
        "the correction does nothing": (unbound, lambda real, managers: ()),
    }

    def run(self, case: Case, seed: int) -> Observation:
        with Windows(**case.launch) as engine:
            server = Runner(engine, seed)
            case.talk(server)
            try:
                for _ in range(4000):
                    if not engine.scheduler.has_unfinished_requests():
                        break
                    server.step()
            except ValueError as error:
                if "free blocks from the pool" not in str(error):
                    raise
            left = len(engine.scheduler.requests)
        return Observation(left / _REQUESTS, hashlib.sha256(repr(server.log).encode()).hexdigest())
