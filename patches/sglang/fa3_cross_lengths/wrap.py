"""Correction of sglang.fa3-cross-lengths.

The engine lays out the batch as one without encoders. Then each request gets its own: its length, the slots of its encoder's
tokens, and those of its text, which lie behind them in its row of the page table.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call


def several_encoders(target: Any, instance: Any, forward_batch: Any) -> bool:
    return of_several(forward_batch.encoder_lens) and plain(instance, forward_batch.spec_info)


def several_encoders_in_graph(target: Any, instance: Any, encoder_lens: Any, spec_info: Any) -> bool:
    return of_several(encoder_lens) and plain(instance, spec_info)


def of_several(encoder_lens: Any) -> bool:
    """A batch of one request is laid out right."""
    return encoder_lens is not None and encoder_lens.shape[0] > 1


def plain(backend: Any, spec_info: Any) -> bool:
    """Pages of several tokens do not begin where a text begins, in any release. Drafts of such models were not read."""
    return backend.page_size == 1 and spec_info is None


def init_forward_metadata(call: Call, instance: Any, forward_batch: Any) -> Any:
    """Without a CUDA graph: prefill, and decode where some request has no image. Sets `instance.forward_metadata`."""
    import torch

    shown = copy(forward_batch)
    shown.encoder_lens = None
    result = call(forward_batch=shown)
    metadata, lens, rows = instance.forward_metadata, forward_batch.encoder_lens, forward_batch.req_pool_indices
    req_to_token = forward_batch.req_to_token_pool.req_to_token
    longest = max(forward_batch.encoder_lens_cpu)
    metadata.encoder_lens_int32 = lens.to(torch.int32)
    metadata.encoder_cu_seqlens_k = torch.nn.functional.pad(lens.cumsum(0, dtype=torch.int32), (1, 0))
    metadata.encoder_max_seq_len_k = longest
    metadata.encoder_page_table = req_to_token[rows, :longest]
    metadata.page_table = text_slots(req_to_token, rows, lens, metadata.max_seq_len_k)
    call.corrected(rows=lens.shape[0])
    return result


def init_forward_metadata_replay_cuda_graph(
    call: Call, instance: Any, bs: int, req_pool_indices: Any, encoder_lens: Any, seq_lens_cpu: Any
) -> Any:
    """A decode graph: what it reads is written in place. One wait for the GPU, where the engine waits several times."""
    import torch

    result = call(encoder_lens=None)
    metadata, lens, rows = instance.forward_metadata, encoder_lens[:bs], req_pool_indices[:bs]
    counts, text = lens.tolist(), metadata.max_seq_len_k
    longest = max(counts)
    metadata.encoder_lens_int32.copy_(lens)
    metadata.encoder_cu_seqlens_k[1:].copy_(lens.cumsum(0, dtype=torch.int32))
    metadata.encoder_max_seq_len_k = longest
    metadata.encoder_page_table[:, :longest].copy_(instance.req_to_token[rows, :longest])
    metadata.page_table[:, :text].copy_(text_slots(instance.req_to_token, rows, lens, text))
    others = unlike_the_first(counts, seq_lens_cpu)
    if others:
        call.corrected(rows=others)
    return result


def unlike_the_first(counts: list[int], seq_lens_cpu: Any) -> int:
    """Requests whose encoder has another length than the first one's. Padding rows stand behind all and have one token each."""
    texts = [] if seq_lens_cpu is None else seq_lens_cpu.tolist()
    while texts and texts[-1] == 1:
        texts.pop()
    real = len(counts) if seq_lens_cpu is None else len(texts)
    return sum(count != counts[0] for count in counts[:real])


def text_slots(req_to_token: Any, rows: Any, encoder_lens: Any, count: int) -> Any:
    """Slots of up to `count` tokens of text of each request, int32 [requests, count]. Behind its own last token, a shorter text
    gets what nobody reads; the last column is as good as any."""
    import torch

    columns = encoder_lens.long()[:, None] + torch.arange(count, device=encoder_lens.device)
    return req_to_token[rows[:, None], columns.clamp_(max=req_to_token.shape[1] - 1)]
