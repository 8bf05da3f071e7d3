"""What the engine core does between the workers' layers and its scheduler, in the words of each release."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from attnfix.patches.lab.vllm.kernels import found

_UTILS = "vllm.v1.core.kv_cache_utils"


def kv_cache_configs(config: Any, specs: Sequence[dict[str, Any]], memory: int) -> tuple[list[Any], Any]:
    """(the plan of each worker's cache, the scheduler's). specs: what the layers of each worker keep. memory: bytes of each."""
    utils: Any = import_module(_UTILS)
    planning: Any = found("vllm.v1.core.kv_cache_planning") or utils
    if not hasattr(planning, "get_kv_cache_configs"):  # up to 0.10.2
        configs = [utils.get_kv_cache_config(config, spec, memory) for spec in specs]
        utils.unify_kv_cache_configs(configs)
        return configs, configs[0]
    groups = [planning.get_global_kv_cache_groups(config, specs)] if planning is not utils else []
    configs = planning.get_kv_cache_configs(config, specs, [memory] * len(specs), *groups)
    return configs, utils.generate_scheduler_kv_cache_config(configs)


def block_sizes(config: Any, kv_cache_config: Any) -> tuple[int, int]:
    """Tokens of a block of the scheduler, and of what is hashed at once."""
    utils: Any = import_module(_UTILS)
    if hasattr(utils, "resolve_kv_cache_block_sizes"):  # from 0.20
        sizes: tuple[int, int] = utils.resolve_kv_cache_block_sizes(kv_cache_config, config)
        return sizes
    size = config.cache_config.block_size
    if "block_size" in signature(_scheduler().__init__).parameters:  # from 0.12; before, the scheduler multiplies
        size *= config.parallel_config.decode_context_parallel_size
    return size, size


def align(config: Any, plans: Sequence[Any], block_size: int, hash_block_size: int) -> None:
    """Tells every plan of a cache where hits may end, from 0.32.0. plans: of each worker, last the scheduler's."""
    utils: Any = import_module(_UTILS)
    if hasattr(utils, "resolve_cache_hit_alignment_tokens"):
        aligned = utils.resolve_cache_hit_alignment_tokens(plans[-1], config, block_size, hash_block_size)
        for each in plans:
            each.hash_block_size, each.cache_hit_alignment_tokens = hash_block_size, aligned


def _scheduler() -> Any:
    return import_module("vllm.v1.core.sched.scheduler").Scheduler


def scheduler(config: Any, kv_cache_config: Any, block_size: int, hash_block_size: int) -> tuple[Any, Any]:
    """(the scheduler, what hashes the blocks of a request: None in 0.10.0, whose scheduler does)."""
    utils: Any = import_module(_UTILS)
    base = _scheduler()
    parameters = signature(base.__init__).parameters
    cls = config.scheduler_config.get_scheduler_cls() if hasattr(config.scheduler_config, "get_scheduler_cls") else base
    structured: Any = import_module("vllm.v1.structured_output").StructuredOutputManager
    given = dict(vllm_config=config, kv_cache_config=kv_cache_config, structured_output_manager=structured(config),
                 block_size=block_size, hash_block_size=hash_block_size)  # fmt: skip
    hasher = None
    if hasattr(utils, "get_request_block_hasher"):
        homes = found("vllm.utils.hashing") or import_module("vllm.utils")
        hash_of = homes.get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        utils.init_none_hash(hash_of)
        # A draft's key depends on the next token, too: where no block is dropped for that, its hash says the token
        ahead = [config.num_hash_lookahead_tokens] if hasattr(config, "num_hash_lookahead_tokens") else []
        hasher = utils.get_request_block_hasher(hash_block_size, hash_of, *ahead)
    return cls(**{name: given[name] for name in parameters if name in given}), hasher
