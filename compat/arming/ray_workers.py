"""Switches reach Ray workers on other nodes, so that all ranks of a deployment agree. So does the name of the server: workers
beside it are then on its metrics page.

Such a worker starts with the environment of its node, not of the driver. vLLM copies the variables that it knows by name or
prefix, sglang none: ours are added where the engine prepares its workers. Under ATTNFIX=0, too: else the driver would run
stock and its workers patched. Upstream: `vllm/ray/ray_env.py`, `sglang/srt/ray/scheduler_actor.py`. vLLM's second Ray executor
(0.20.0 and later) copies the whole environment by itself.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from ..engines import engine_of
from ..status import messages, metrics
from .switches import killed


def switches() -> dict[str, str]:
    """The ATTNFIX variables of this process, as they are now."""
    return {name: value for name, value in os.environ.items() if name == "ATTNFIX" or name.startswith("ATTNFIX_")}


def variables() -> dict[str, str]:
    """The same, and the name of its server."""
    return switches() if killed() else {metrics.SERVER: metrics.server(), **switches()}


def module_loaded(name: str) -> None:
    """Add our variables to those an engine gives to its workers, if module `name` prepares them. Lets no exception out."""
    if name in _CARRIERS and engine_of(name).admits_us():
        try:
            _CARRIERS[name](sys.modules[name])
        except Exception as error:
            message = f"switches do not reach Ray workers on other nodes, set them there, too: {type(error).__name__}: {error}"
            messages.warn(engine_of(name).name, message)


def catch_up() -> None:
    """The same for an engine that was loaded before attnfix was active. Idempotent."""
    for name in MODULES & sys.modules.keys():
        module_loaded(name)


def _vllm(module: ModuleType) -> None:
    """`get_env_vars_to_copy(exclude_vars, …)` returns names. What the operator excludes stays excluded."""
    names_to_copy, excluded = module.get_env_vars_to_copy, module.RAY_NON_CARRY_OVER_ENV_VARS
    if hasattr(names_to_copy, "__wrapped__"):
        return

    @functools.wraps(names_to_copy)
    def get_env_vars_to_copy(exclude_vars: set[str] | None = None, *args: Any, **kwargs: Any) -> set[str]:
        names: set[str] = names_to_copy(exclude_vars, *args, **kwargs)
        ours = variables()
        os.environ.update(ours)  # the engine reads the values there
        return names.union(ours.keys() - excluded - (exclude_vars or set()))

    name = "get_env_vars_to_copy"
    for holder in list(sys.modules.values()):  # the executors import it by name
        if getattr(holder, "__dict__", {}).get(name) is names_to_copy:
            setattr(holder, name, get_env_vars_to_copy)


def _sglang(module: ModuleType) -> None:
    """`SchedulerActor.options(…)` takes Ray's options of one scheduler. A `runtime_env` of the engine's own goes first. Where
    nobody set a switch and there is none, Ray is given none: what a cluster makes of one is not known here."""
    actor = module.SchedulerActor
    options = actor.options
    if hasattr(options, "__wrapped__"):
        return

    @functools.wraps(options)
    def with_variables(**given: Any) -> Any:
        runtime_env = given.get("runtime_env") or {}
        if not (switches() or runtime_env):
            return options(**given)
        env_vars = {**variables(), **runtime_env.get("env_vars", {})}
        return options(**{**given, "runtime_env": {**runtime_env, "env_vars": env_vars}} if env_vars else given)

    actor.options = with_variables


_CARRIERS = {"vllm.ray.ray_env": _vllm, "sglang.srt.ray.scheduler_actor": _sglang}
#: Modules in which an engine prepares its Ray workers
MODULES = frozenset(_CARRIERS)
