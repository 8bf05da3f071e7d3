"""Correction of sglang.fa3-scheduler-metadata.

The schedule is made where there is `_get_scheduler_metadata`; without it FlashAttention 3 makes its own in every layer, as it
did before 0.5.11 and does upstream in these deployments.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Under each of these a rank has more heads than the model's divided by the ranks of tensor parallelism, as it has in a group
#: of context parallelism: --attn-cp-size shares the heads out to fewer ranks without these flags, too
_FLAGS = ("enable_dp_attention", "enable_prefill_cp", "enable_prefill_context_parallel")


def init(call: Call, instance: Any, model_runner: Any) -> Any:
    """`FlashAttentionBackend(model_runner, …)`."""
    result = call()
    if makes_a_schedule(instance) and heads_are_shared_otherwise(model_runner.server_args):
        instance._get_scheduler_metadata = None
        call.corrected()
    return result


def makes_a_schedule(backend: Any) -> bool:
    """Not for latent attention; from 0.5.12 on, not in the deployments of which upstream knows either."""
    spared = backend.use_mla or getattr(backend, "_disable_scheduler_metadata_precompute", False)
    return not spared and getattr(backend, "_get_scheduler_metadata", None) is not None


def heads_are_shared_otherwise(server_args: Any) -> bool:
    return any(getattr(server_args, flag, False) for flag in _FLAGS) or getattr(server_args, "attn_cp_size", 1) > 1
