"""The corrections on a GPU: one launch of the CUDA kernel, and no host synchronisation."""

from __future__ import annotations

import math
from contextlib import contextmanager
from types import SimpleNamespace

import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.kernels import kernel_status
from attnfix.patches.catalogue import BY_ID
from tests.support import one_call

PREFIX, NEW, CHUNK, HEADS, DIM = [5, 37, 0, 20], [3, 2, 4, 5], 16, 16, 128


def state_of(fix):
    state = FixState(BY_ID[fix])
    state.fired = True
    return state


def run(state, name, function, *args, **kwargs):
    """`function` stands for the engine's with that name."""
    return one_call.run(one_call.target_of(state.fix, name), function, state, *args, **kwargs)


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
    results, state = [parts() for _ in lens], state_of("sglang.zero-kv-rows")
    originals = [(out.cpu(), lse.cpu()) for out, lse in results]

    def engine(self, q, k, v, layer, forward_batch):
        return results[forward_batch.prefix_chunk_idx]

    before = launches()
    with no_sync():
        for chunk in range(len(results)):
            batch.prefix_chunk_idx = chunk
            run(state, "forward_extend", engine, backend, None, None, None, None, batch)
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
    result, state = (out, lse.t().contiguous()), state_of("vllm.empty-context-chunks")

    def engine(self, prefill, chunk_idx):
        return result

    before = launches()
    with no_sync():
        run(state, "_run_prefill_context_chunk_trtllm_ragged", engine, None, prefill=prefill, chunk_idx=0)
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

    def build(self, common_prefix_len, common_attn_metadata):
        return metadata

    def context_loop(self, q, kv_c_and_k_pe_cache, attn_metadata):
        return loop

    def merge(output, prefix_output, prefix_lse, suffix_output, suffix_lse):
        return None

    before, state = merges(), state_of("vllm.prefill-context-merge")
    with no_sync():
        run(state, "build", build, None, 0, SimpleNamespace(query_start_loc_cpu=starts))
        out, lse = run(state, "_compute_prefill_context", context_loop, None, None, None, metadata)
        new = {"suffix_output": suffix, "suffix_lse": suffix_lse.t().contiguous()}
        run(state, "merge_attn_states", merge, output=output, prefix_output=out, prefix_lse=lse, **new)
    after = merges()
    corrections = state.counters.corrections
    assert (after["cuda"] - before["cuda"], after["reference"], corrections) == (1, before["reference"], 1)
    assert torch.equal(output[count:], suffix[count:])
    weight = (prefix_lse[:count] - suffix_lse[:count]).sigmoid()[..., None].double()
    expected = prefix[:count].double() * weight + suffix[:count].double() * (1 - weight)
    assert torch.allclose(output[:count].double(), expected, atol=2e-2)
