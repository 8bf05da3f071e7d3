"""The doors: entry points of both engines and the import hook, all into one idempotent activation."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnfix.compat.activation import Activation


@cache
def activation() -> Activation:
    """The one activation of this process, over every fix of the catalogue."""
    from attnfix.compat.activation import Activation
    from attnfix.patches.catalogue import FIXES

    return Activation(FIXES)


def module_loaded(name: str) -> None:
    """A target module has just been executed: called by the import hook."""
    from attnfix.compat.switches import killed

    if not killed():
        activation().module_loaded(name)


def activate() -> None:
    """Install the import hook and engage the fixes of target modules that are loaded already."""
    from attnfix.compat.switches import killed

    from . import _autoload

    if killed():
        return
    _autoload.install()
    activation().catch_up()


def activate_vllm() -> None:
    """Entry point `vllm.general_plugins`."""
    _guarded()


def activate_sglang() -> None:
    """Entry point `sglang.srt.plugins` (sglang 0.5.11 and later)."""
    _guarded()


def _guarded() -> None:
    """vLLM calls plugins unguarded: whatever goes wrong here is said, never raised."""
    try:
        activate()
    except Exception as error:
        import logging

        logging.getLogger("attnfix").warning("attnfix: not active: %s: %s", type(error).__name__, error)
