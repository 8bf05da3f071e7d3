"""The corrections on a GPU: one launch of the CUDA kernel, and no host synchronisation."""

from __future__ import annotations

import math
from contextlib import contextmanager
from types import SimpleNamespace

import torch

from attnfix.kernels import kernel_status
from attnfix.patches.sglang.zero_kv_rows import wrap as zero_kv_rows
from attnfix.patches.vllm.empty_context_chunks import wrap as empty_context_chunks
from attnfix.patches.vllm.prefill_context_merge import wrap as prefill_context_merge

PREFIX, NEW, CHUNK, HEADS, DIM = [5, 37, 0, 20], [3, 2, 4, 5], 16, 16, 128


class Wrapped:
    def __init__(self, result):
        self.result, self.corrections = result, 0

    def __call__(self, *args, **kwargs):
        return self.result

    def corrected(self, rows=0):
        self.corrections += 1


@contextmanager
def no_sync():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def launches():
    return kernel_status()["fixup_zero_kv_rows"]["launches"]


def offsets(lens):
    return torch.tensor([0, *lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def chunk_lens(chunk):
    return torch.tensor([min(max(n - chunk * CHUNK, 0), CHUNK) for n in PREFIX], dtype=torch.int32)


def parts():
    out = torch.randn(sum(NEW), HEADS, DIM, device="cuda", dtype=torch.bfloat16)
    return out, torch.randn(sum(NEW), HEADS, device="cuda")


def check(out, lse, original, lens):
    empty = (lens == 0).repeat_interleave(torch.tensor(NEW))
    assert bool((out.cpu()[empty] == 0).all()) and bool((lse.cpu()[empty] == -math.inf).all())
    assert torch.equal(out.cpu()[~empty], original[0][~empty]) and torch.equal(lse.cpu()[~empty], original[1][~empty])


def test_zero_kv_rows():
    lens = [chunk_lens(chunk) for chunk in range(3)]
    backend = SimpleNamespace(forward_prefill_metadata=SimpleNamespace(cum_seq_lens=offsets(NEW).cuda()))
    batch = SimpleNamespace(
        extend_prefix_lens_cpu=PREFIX, extend_seq_lens_cpu=NEW, num_prefix_chunks=3, prefix_chunk_len=CHUNK,
        prefix_chunk_seq_lens=torch.stack(lens).cuda(), attn_attend_prefix_cache=True,
    )  # fmt: skip
    results = [parts() for _ in lens]
    originals = [(out.cpu(), lse.cpu()) for out, lse in results]
    before = launches()
    with no_sync():
        for chunk, result in enumerate(results):
            batch.prefix_chunk_idx = chunk
            zero_kv_rows.forward_extend(Wrapped(result), backend, (None, None, None, None, batch), {})
    after = launches()
    assert (after["cuda"] - before["cuda"], after["reference"]) == (3, before["reference"])
    for chunk, result in enumerate(results):
        check(*result, originals[chunk], lens[chunk])


def test_empty_context_chunks():
    lens = chunk_lens(1)
    out, lse = parts()
    original = out.cpu(), lse.cpu()
    context = SimpleNamespace(seq_lens=lens[None], cu_seq_lens=offsets(lens.tolist())[None].cuda())
    prefill = SimpleNamespace(chunked_context=context, query_start_loc=offsets(NEW).cuda())
    result = out, lse.t().contiguous()
    before = launches()
    with no_sync():
        empty_context_chunks.run_prefill_context_chunk(Wrapped(result), None, (), {"prefill": prefill, "chunk_idx": 0})
    after = launches()
    assert (after["cuda"] - before["cuda"], after["reference"]) == (1, before["reference"])
    check(out, result[1].t(), original, lens)


def test_prefill_context_merge():
    """The whole way of the count: from the batch's metadata to one launch that reads no prefix of the last two requests."""
    starts, context = offsets(NEW), torch.tensor([[16, 3, 0, 0]], dtype=torch.int32)
    chunked = SimpleNamespace(seq_lens=context)
    metadata = SimpleNamespace(num_decodes=0, prefill=SimpleNamespace(chunked_context=chunked))
    count = NEW[0] + NEW[1]
    (prefix, prefix_lse), (suffix, suffix_lse) = parts(), parts()
    prefix[count:], prefix_lse[count:] = torch.nan, torch.nan
    output, loop = torch.empty_like(prefix), (prefix, prefix_lse.t().contiguous())
    merges = lambda: kernel_status()["merge_attn_states"]["launches"]  # noqa: E731
    before, wrapped = merges(), Wrapped(None)
    with no_sync():
        common = SimpleNamespace(query_start_loc_cpu=starts)
        prefill_context_merge.build(Wrapped(metadata), None, (0, common), {})
        out, lse = prefill_context_merge.compute_prefill_context(Wrapped(loop), None, (None, None, metadata), {})
        new = {"suffix_output": suffix, "suffix_lse": suffix_lse.t().contiguous()}
        arguments = {"output": output, "prefix_output": out, "prefix_lse": lse, **new}
        prefill_context_merge.merge_attn_states(wrapped, None, (), arguments)
    after = merges()
    assert (after["cuda"] - before["cuda"], after["reference"], wrapped.corrections) == (1, before["reference"], 1)
    assert torch.equal(output[count:], suffix[count:])
    weight = (prefix_lse[:count] - suffix_lse[:count]).sigmoid()[..., None].double()
    expected = prefix[:count].double() * weight + suffix[:count].double() * (1 - weight)
    assert torch.allclose(output[:count].double(), expected, atol=2e-2)
