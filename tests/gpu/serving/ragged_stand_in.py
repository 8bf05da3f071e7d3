"""A test-only vLLM plugin: MLA prefill takes its TRT-LLM ragged path on a GPU that has no such kernel.

Blackwell alone has FlashInfer's `trtllm_ragged_attention_deepseek`. In its place stands the GPU's own FlashAttention, with both
faults of that kernel, which are described in patches/lab/emulators/__init__.py: rows of requests without KV are not
written, and the LSE is that of base 2. Everything else (the choice of chunks, gathers, the backend's class, merges) is vLLM's,
called as on Blackwell. Three things are done, and nothing more:
    the function is put at FlashInfer's entry point; where FlashInfer is not installed, a module of that name holds it alone
    TrtllmRaggedPrefillBackend says that it supports this GPU
    rows without KV hold random numbers, as plausible as what an earlier launch would have left there
It is chosen by vLLM's own setting, attention_config={"mla_prefill_backend": "TRTLLM_RAGGED"}.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

NAME = "attnfix-test-ragged-stand-in"
EMULATED = (
    "flashinfer.prefill.trtllm_ragged_attention_deepseek: this GPU's FlashAttention through vLLM's flash_attn_varlen_func; "
    "rows without KV hold random numbers (output 1 to 20, LSE 2 to 12); LSE in base 2",
    "TrtllmRaggedPrefillBackend.supports_compute_capability: true for this GPU",
)
_noise: dict[Any, Any] = {}


def install() -> None:
    """The plugin's entry point, called by vLLM in each of its processes."""
    from vllm.v1.attention.backends.mla.prefill import trtllm_ragged

    try:
        import flashinfer.prefill as prefill
    except ImportError:
        # Not `flashinfer` itself: vLLM goes on finding none, and uses nothing else of it
        prefill = sys.modules["flashinfer.prefill"] = ModuleType("flashinfer.prefill")
    prefill.trtllm_ragged_attention_deepseek = trtllm_ragged_attention_deepseek  # type: ignore[attr-defined]
    backend: Any = trtllm_ragged.TrtllmRaggedPrefillBackend
    backend.supports_compute_capability = classmethod(lambda cls, device_capability: True)


def trtllm_ragged_attention_deepseek(
    query: Any, key: Any, value: Any, *, max_q_len: int, max_kv_len: int, bmm1_scale: float, bmm2_scale: float,
    cum_seq_lens_q: Any, cum_seq_lens_kv: Any, is_causal: bool, return_lse: bool, out: Any, **launch: Any,
) -> Any:  # fmt: skip
    """query: [tokens, heads, d]; key, value: [kv, heads, …]; out: [tokens, heads, dv], written. The LSE: [tokens, heads]."""
    from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func, get_flash_attn_version

    result, lse = flash_attn_varlen_func(
        q=query, k=key, v=value, cu_seqlens_q=cum_seq_lens_q, cu_seqlens_k=cum_seq_lens_kv, max_seqlen_q=max_q_len,
        max_seqlen_k=max_kv_len, softmax_scale=bmm1_scale, causal=is_causal, return_softmax_lse=True,
        fa_version=get_flash_attn_version(head_size=query.shape[-1]),
    )[:2]  # fmt: skip
    result, lse = leave_unwritten(result * bmm2_scale, lse.t() / math.log(2), cum_seq_lens_q, cum_seq_lens_kv)
    out.copy_(result)
    return (out, lse.contiguous()) if return_lse else out


def leave_unwritten(out: Any, lse: Any, q_at: Any, kv_at: Any) -> tuple[Any, Any]:
    """out [tokens, heads, d] and lse [tokens, heads] with noise in the rows of requests without KV; no look at the GPU waits.

    q_at, kv_at: where each request's rows and keys begin, and the last one's end.
    """
    import torch

    if out.device not in _noise:
        _noise[out.device] = torch.Generator(out.device)
        _noise[out.device].seed()
    request = torch.searchsorted(q_at[1:], torch.arange(len(out), device=out.device, dtype=q_at.dtype), right=True)
    without = (kv_at.diff() == 0)[request.clamp(max=len(kv_at) - 2)]
    noise = lambda like, low, high: (  # noqa: E731
        torch.rand(like.shape, generator=_noise[out.device], device=out.device).mul_(high - low).add_(low).to(like.dtype)
    )
    return torch.where(without[:, None, None], noise(out, 1, 20), out), torch.where(without[:, None], noise(lse, 2, 12), lse)
