"""Hotfixes for the attention backends of installed sglang and vLLM releases, applied in memory.

Nothing need be called: installing the package is enough. `activate()` is for processes that no activation path
reaches, `status()` tells what became of every fix in this process.
"""

# This runs at every interpreter start: neither `typing` nor `__future__` is imported here
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["__version__", "activate", "status"]


def activate() -> None:
    """Activate every fix in this process. Idempotent; lets no exception out. Best called before the engine is imported."""
    from .bootstrap.entry_points import activate

    activate()


def status() -> "list[dict[str, Any]]":
    """State of every fix in this process: dicts with fix, state, reason, switch, release and counters."""
    from .bootstrap.process import activation
    from .compat.engines import ENGINES

    rows: list[dict[str, Any]] = activation(*ENGINES).rows()
    return rows


def __getattr__(name: str) -> str:
    if name == "__version__":  # read on demand: importlib.metadata is too slow for every interpreter start
        from importlib.metadata import version

        return version("attnfix")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
