"""Correction of vllm.dcp-spec-graph."""

from __future__ import annotations

import inspect
from typing import Any

from attnfix.compat.fix import Call

_MLA = "vllm.v1.attention.backends.mla."
_TOLD = "supports_dcp_with_varlen"


def backend_of_one_token(
    target: Any, instance: Any, min_cg_support: Any = None, uniform_decode_query_len: int = 0
) -> str | None:
    """The name of a backend that verifies drafts as prefills, where the runner is about to ask for full graphs of them.

    `instance` is the configuration of compilation; up to 0.19.1 it is the V1 runner, and decides by itself.
    """
    config = getattr(instance, "compilation_config", instance)
    tokens = uniform_decode_query_len or getattr(instance, "uniform_decode_query_len", 1)
    mode = config.cudagraph_mode
    if tokens < 2 or mode is None or not mode.has_full_cudagraphs():
        return None
    if min_cg_support is not None and min_cg_support.value <= of_one_token(min_cg_support).value:
        return None  # the engine does without these graphs by itself
    for layer in config.static_forward_context.values():
        if getattr(getattr(layer, "impl", None), "need_to_return_lse_for_decode", False):  # as under DCP alone
            backend = layer.get_attn_backend()
            if takes_one_token(backend.get_builder_cls()):
                return backend.__name__
    return None


def check_and_update_cudagraph_mode(call: Call, instance: Any, min_cg_support: Any = None, attention_backends: Any = ()) -> Any:
    """The engine is told that this backend has graphs of one token per request; what follows from that, it knows."""
    if min_cg_support is not None:
        result = call(min_cg_support=of_one_token(min_cg_support), min_cg_attn_backend=call.found)
    else:
        result = call(attention_backends=[{told(call, backend) for backend in group} for group in attention_backends])
    call.corrected()
    return result


def takes_one_token(builder: type) -> bool:
    """Whether under DCP this builder of MLA metadata takes more than one token of a request for a prefill.

    It does unless its constructor tells the common one that it need not. The common builder then asserts at the capture of
    such a graph that the tokens are no prefill: no server that starts is changed.
    """
    if not builder.__module__.startswith(_MLA) or all(base.__name__ != "MLACommonMetadataBuilder" for base in builder.__mro__):
        return False
    constructor: Any = next(vars(base)["__init__"] for base in builder.__mro__ if "__init__" in vars(base))
    constants = inspect.unwrap(constructor).__code__.co_consts  # of a call's keywords, alone or in a tuple
    return _TOLD not in constants and not any(_TOLD in names for names in constants if isinstance(names, tuple))


def of_one_token(support: Any) -> Any:
    """AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE."""
    return type(support).UNIFORM_SINGLE_TOKEN_DECODE


def told(call: Call, backend: Any) -> Any:
    return _OfOneToken(call, backend) if backend.__name__ == call.found else backend


class _OfOneToken:
    """A backend and its builder, as far as the V1 runner asks them here, with graphs of one token per request."""

    def __init__(self, call: Call, backend: Any):
        self.builder, self.__name__ = backend.get_builder_cls(), backend.__name__
        self.get_cudagraph_support = call.guard(self.support_of_one_token, self.builder.get_cudagraph_support)

    def get_builder_cls(self) -> Any:
        return self

    def support_of_one_token(self, vllm_config: Any, kv_cache_spec: Any) -> Any:
        support = self.builder.get_cudagraph_support(vllm_config, kv_cache_spec)
        return min(support, of_one_token(support), key=lambda level: level.value)
