"""Correction of vllm.dcp-mamba-drafts."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

_BUILDER = "Mamba2AttentionMetadataBuilder"


def is_mamba2_under_dcp(target: Any, instance: Any, supports_spec_as_decode: bool, supports_dcp_with_varlen: bool) -> bool:
    """Whether DCP would make a verification a prefill to layers of Mamba2, whose states are whole on each rank."""
    if supports_dcp_with_varlen or not supports_spec_as_decode or type(instance).__name__ != _BUILDER:
        return False
    config = instance.vllm_config
    return config.parallel_config.decode_context_parallel_size > 1 and config.speculative_config is not None


def init_reorder_batch_threshold(call: Call, instance: Any) -> None:
    """The engine's own argument says that rows of several tokens are decodes under DCP as well."""
    call(supports_dcp_with_varlen=takes_several_tokens())
    call.corrected()


def takes_several_tokens() -> bool:
    return True
