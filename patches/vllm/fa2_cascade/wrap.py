"""Correction of vllm.fa2-cascade.

FlashAttention 2 splits the keys in decode steps of grouped queries alone. The kernel that combines the splits then writes LSEs
as [KV heads, group, requests], and its caller reads them as [KV heads, requests, group] (`mha_varlen_fwd` in `flash_api.cpp`).
"""

from __future__ import annotations

from math import ceil
from typing import Any

from attnfix.compat.fix import Call

_CLOSE = 1e-5  # relative; the kernel's caller computes in float32


def is_merged_wrongly(target: Any, instance: Any, common_prefix_len: int, common_attn_metadata: Any) -> bool:
    """Whether this is a cascade whose second launch splits its keys. All is on the host, and the same on all ranks."""
    if common_prefix_len <= 0 or common_attn_metadata.max_query_len != 1:
        return False
    group = instance.num_heads_q // instance.num_heads_kv
    if group == 1 or instance.device.type == "xpu" or target.function.__globals__["get_flash_attn_version"]() != 2:
        return False
    requests, size = common_attn_metadata.num_reqs, instance.headdim
    longest = int(common_attn_metadata.seq_lens_cpu[:requests].max()) - common_prefix_len
    blocks = ceil(longest / (256 if size <= 64 else 128 if size <= 128 else 64))
    return may_split(requests * instance.num_heads_kv * ceil(group / 64), 2 * multiprocessors(instance.device), blocks)


def may_split(tiles: int, slots: int, blocks: int) -> bool:
    """Whether the kernel's caller may take several splits (`num_splits_heuristic`): not where one split is clearly its choice.

    It takes the smallest number of splits that fills the last wave of slots nearly as well as the best.
    """
    if tiles >= 0.8 * slots * (1 + _CLOSE):
        return False
    counts = [n for n in range(1, min(128, slots, blocks) + 1) if n == 1 or ceil(blocks / n) != ceil(blocks / (n - 1))]
    filled = [tiles * n / slots / ceil(tiles * n / slots) for n in counts]
    return bool(filled) and filled[0] < 0.85 * max(filled) * (1 + _CLOSE)


def multiprocessors(device: Any) -> int:
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count


def build(call: Call, instance: Any) -> Any:
    metadata = call(common_prefix_len=0)
    call.corrected()
    return metadata
