"""The config that the engine makes a model for, and whether keys and values of that server have readers elsewhere."""

from __future__ import annotations

import sys
from typing import Any

_MODULES = "vllm.config.vllm", "vllm.config"


def current() -> Any:
    """None while no model is made."""
    configs = (getattr(sys.modules.get(name), "_current_vllm_config", None) for name in _MODULES)
    return next((config for config in configs if config is not None), None)


def kept_here(target: Any, config: Any) -> bool:
    """Whether no KV connector shares the keys, which a correction rotates in another way, and no file brings tables of its own
    behind it. Says so where one does."""
    if getattr(getattr(config, "load_config", None), "load_format", None) == "tensorizer":
        target.leave_out("a tensorizer file brings rotary tables of its own")
        return False
    return not shares_keys(target, config)


def shares_keys(target: Any, config: Any) -> bool:
    """Whether a KV connector shares the keys, which a correction rotates in another way. Says so."""
    if config.kv_transfer_config is None:
        return False
    target.leave_out(f"a KV connector {config.kv_transfer_config.kv_connector} shares keys, which would be rotated otherwise")
    return True


def has_folder_of_code(target: Any, config: Any) -> bool:
    """Whether compiled code is looked for in a folder of a given name, where some may lie that was compiled without a
    correction. Says so. Other folders are named by a hash of the model's config, among others."""
    if not config.compilation_config.cache_dir:
        return False
    target.leave_out("compilation_config.cache_dir is set, where code may lie that was compiled without the correction")
    return True
