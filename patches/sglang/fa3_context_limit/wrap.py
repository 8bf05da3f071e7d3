"""Correction of sglang.fa3-context-limit.

A backend lays its page tables out for `max_context_len` tokens, and fills them up to it. The rows of `req_to_token`, from which
they are filled, are wider where tokens are drafted: what is drafted near the limit has its slots there.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

#: Backends without any `FlashAttentionBackend`
_OTHERS = frozenset({
    "triton", "flashinfer", "trtllm_mha", "trtllm_mla", "flashmla", "cutlass_mla", "cutedsl_mla", "tokenspeed_mla",
    "dsa", "nsa", "torch_native", "flex_attention",
})  # fmt: skip


def init(call: Call, instance: Any, model_runner: Any) -> Any:
    """`FlashAttentionBackend(model_runner, …)`."""
    result = call()
    width = addressable(instance)
    if width > instance.max_context_len and may_capture(call.target, model_runner) and may_see(call.target, model_runner):
        instance.max_context_len = width
        if hasattr(instance, "max_num_pages"):  # from 0.5.15: the same, in pages
            instance.max_num_pages = -(-width // instance.page_size)
        call.corrected()
    return result


def addressable(backend: Any) -> int:
    """Tokens that a request can have slots for: more than the context only where tokens are drafted."""
    drafts = getattr(backend, "speculative_num_draft_tokens", None)
    return backend.req_to_token.shape[1] if drafts else backend.max_context_len


def may_capture(target: Any, model_runner: Any) -> bool:
    """Whether there may be a decode graph: the tables of others are as wide as their requests. From 0.5.21 on, a server of
    prefills alone captures graphs when it becomes one of decodes."""
    args = model_runner.server_args
    if getattr(args, "disaggregation_mode", None) not in (None, "null"):
        return True
    for settings in (getattr(settled(target, "get_exec"), "graph", None), args):
        decode = getattr(getattr(settings, "cuda_graph_config", None), "decode", None)
        if decode is not None:  # from 0.5.14
            return bool(decode.backend != "disabled")
    return not getattr(args, "disable_cuda_graph", False)


def may_see(target: Any, model_runner: Any) -> bool:
    """Whether drafts may come to this backend: of two that a server has, one prefills or decodes alone.

    A draft model of several layers has this backend for each of them, whatever backend is named (0.5.7 to 0.5.10.post1).
    """
    args, draft = model_runner.server_args, getattr(model_runner, "is_draft_worker", False)
    if draft and getattr(args, "enable_multi_layer_eagle", False):
        return True
    spec = settled(target, "get_spec") or args
    prefills, decodes = chosen(model_runner)
    mode = getattr(spec, "speculative_attention_mode", None)  # 0.5.1 has none: in a graph its decoding backend verifies
    see = {"prefill": {prefills}, "decode": {decodes}}.get(str(mode), {prefills, decodes})
    if draft:
        named = getattr(spec, "speculative_draft_attention_backend", None)
        see = {named} if named else {decodes, *see}
    return not see <= _OTHERS


def chosen(model_runner: Any) -> tuple[Any, Any]:
    """Names of the backends that prefill and decode, None where they cannot be told. From 0.5.16 to 0.5.17 the runner has them
    later than its backends. Up to 0.5.17 two that are equal are not asked: there is one backend, of the name that stands for
    both."""
    args = model_runner.server_args
    names = [getattr(model_runner, f"{part}_attention_backend_str", None) for part in ("prefill", "decode")]
    if None in names and hasattr(args, "get_attention_backends"):
        names = args.get_attention_backends()
    prefills, decodes = names
    both = getattr(args, "attention_backend", prefills)
    return (both, both) if prefills == decodes and both not in _OTHERS else (prefills, decodes)


def settled(target: Any, name: str) -> Any:
    """What the backend's module asks for settings: from 0.5.18 on, where a server's arguments come to be as they were given."""
    ask = target.function.__globals__.get(name)
    return ask() if ask else None
