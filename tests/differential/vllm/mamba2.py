"""Stand-ins for the kernels of Mamba2, at their entry points: the convolution, the scan over a prompt, the step of a decode.

They compute in float64, and read of a launch what its kernel reads: the convolution's grid from the metadata's chunks of eight
tokens, the scan's chunks and the sequence that each belongs to, initial states and flags, the indices of states, the tokens
that were accepted. States are kept in the dtype of the cache. A sequence whose state is the null block is left out by the
convolution, and has no state in a step of a decode. What a kernel does not write stays as the caller's memory was.
Source: `_causal_conv1d_fwd_kernel`, `_causal_conv1d_update_kernel`, `_state_passing_fwd_kernel`, `_chunk_scan_fwd_kernel`,
`_selective_scan_update_kernel` of vLLM. Not here: prefix caching in mode "all", which Model Runner V2 refuses, and ReplaySSM.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import torch

from ..mamba2_reference import convolved

_OPS = "vllm.model_executor.layers.mamba.ops"
_CHUNK = 8  # BLOCK_M of the convolution


def _no_mode_all(more: dict[str, Any]) -> None:
    names = "block_idx_first_scheduled_token", "block_idx_last_scheduled_token", "initial_state_idx"
    if any(more.get(name) is not None for name in names):
        raise NotImplementedError("this stand-in has no prefix caching in mode all")


def causal_conv1d_fn(
    x: Any, weight: Any, bias: Any, conv_states: Any, query_start_loc: Any, cache_indices: Any = None,
    has_initial_state: Any = None, activation: Any = "silu", pad_slot_id: int = -1, null_block_id: int = 0,
    metadata: Any = None, **more: Any,
) -> Any:  # fmt: skip
    """x: [dim, tokens]; conv_states: [blocks, dim, width - 1 or more], of which the first width - 1 are a state."""
    _no_mode_all(more)
    length, starts = weight.shape[1] - 1, query_start_loc.tolist()
    grid = metadata.nums_dict[_CHUNK]
    launched = (grid[name][: grid["tot"]].tolist() for name in ("batch_ptr", "token_chunk_offset_ptr"))
    rows, out = x.to(conv_states.dtype).t(), torch.empty_like(x, dtype=conv_states.dtype)
    for sequence, chunk in zip(*launched):
        if sequence == pad_slot_id or (block := int(cache_indices[sequence])) == null_block_id:
            continue
        own = rows[starts[sequence] : starts[sequence + 1]]
        first = chunk * _CHUNK
        if chunk:
            before = own[first - length : first]
        else:
            state = conv_states[block, :, :length]
            before = state.t().clone() if has_initial_state[sequence] else torch.zeros_like(state.t())
            state.copy_(torch.cat([before, own])[-length:].t())
        piece = convolved(before, own[first : first + _CHUNK], weight, bias, activation)
        at = starts[sequence] + first
        out[:, at : at + len(piece)] = piece.t().to(out.dtype)
    return out.to(x.dtype)


def causal_conv1d_update(
    x: Any, conv_state: Any, weight: Any, bias: Any = None, activation: Any = None, conv_state_indices: Any = None,
    num_accepted_tokens: Any = None, query_start_loc: Any = None, max_query_len: int = -1, null_block_id: int = 0,
    out: Any = None, **more: Any,
) -> Any:  # fmt: skip
    """x: [tokens, dim], which the result takes the place of. With drafts a state is longer by one place for each; its window
    begins behind the tokens that were accepted of the last step."""
    _no_mode_all(more)
    width = weight.shape[1]
    result = x if out is None else out
    blocks = conv_state_indices.view(len(conv_state_indices), -1)[:, 0].tolist()
    starts = query_start_loc.tolist() if query_start_loc is not None else list(range(len(x) + 1))
    longest = max_query_len if query_start_loc is not None else 1
    for sequence, block in enumerate(blocks[: len(starts) - 1]):
        begin, end = starts[sequence], starts[sequence + 1]
        if block == null_block_id or begin == end:
            continue
        skipped, kept = 0, width - 1
        if num_accepted_tokens is not None:
            skipped, kept = int(num_accepted_tokens[sequence]) - 1, width - 1 + longest - 1
            kept -= longest - (end - begin) if query_start_loc is not None else 0
        own = x[begin:end].to(conv_state.dtype)
        state = conv_state[block].t().clone()
        before = state[skipped : skipped + width - 1]
        older = skipped + (1 if num_accepted_tokens is not None else end - begin)
        shifted = state[older : older + kept - (end - begin)]
        conv_state[block, :, :kept] = torch.cat([shifted, own])[:kept].t()
        result[begin:end] = convolved(before, own, weight, bias, activation).to(result.dtype)
    return result


def selective_state_update(
    state: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, dt_bias: Any = None,
    dt_softplus: bool = False, state_batch_indices: Any = None, dst_state_batch_indices: Any = None, null_block_id: int = 0,
    out: Any = None, num_accepted_tokens: Any = None, cu_seqlens: Any = None, **more: Any,
) -> None:  # fmt: skip
    """state: [blocks, heads, d, n]; x, out: [tokens, heads, d]; B, C: [tokens, groups, n]. With drafts the state after each
    token has a block of its own."""
    if z is not None or state_batch_indices is None:
        raise NotImplementedError("this stand-in has no gate, and no states without indices")
    into = state_batch_indices if dst_state_batch_indices is None else dst_state_batch_indices
    read, written = (each.view(len(each), -1) for each in (state_batch_indices, into))
    starts = cu_seqlens.tolist() if cu_seqlens is not None else list(range(len(x) + 1))
    decays, added = _steps(x, dt[..., 0], A[:, 0, 0], B, dt_bias[:, 0], dt_softplus)
    for sequence, (begin, end) in enumerate(itertools.pairwise(starts)):
        if begin == end:
            continue
        first = max(int(num_accepted_tokens[sequence]) - 1, 0) if num_accepted_tokens is not None else 0
        block = int(read[sequence, first])
        held = state[block].double() if block != null_block_id else torch.zeros(state.shape[1:], dtype=torch.float64)
        after = _run(held, decays[begin:end], added[begin:end])
        out[begin:end] = _seen(after, x[begin:end], C[begin:end], D).to(out.dtype)
        if block == null_block_id:
            continue
        if num_accepted_tokens is None:
            state[int(written[sequence, 0])] = after[-1].to(state.dtype)
            continue
        for at, held in enumerate(after):
            if (target := int(written[sequence, at])) != null_block_id:
                state[target] = held.to(state.dtype)


def _steps(x: Any, dt: Any, A: Any, B: Any, dt_bias: Any, softplus: bool) -> tuple[Any, Any]:
    """Of each token how a state decays, [tokens, heads], and what is added to it, [tokens, heads, d, n]."""
    step = dt.double() if dt_bias is None else dt.double() + dt_bias.double()
    step = torch.nn.functional.softplus(step) if softplus else step
    B = B.double().repeat_interleave(x.shape[1] // B.shape[1], 1)
    return (step * A.double()).exp(), (step[..., None] * x.double())[..., None] * B[:, :, None]


def _run(held: Any, decays: Any, added: Any) -> Any:
    """The state behind each of the tokens, [tokens, heads, d, n]."""
    after = torch.empty_like(added)
    for at in range(len(added)):
        held = after[at] = held * decays[at][:, None, None] + added[at]
    return after


def _seen(after: Any, x: Any, C: Any, D: Any) -> Any:
    out = (after * C.double().repeat_interleave(x.shape[1] // C.shape[1], 1)[:, :, None]).sum(-1)
    return out if D is None else out + D.double().view(x.shape[1], -1) * x.double()


def mamba_chunk_scan_combined_varlen(
    x: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, cu_seqlens: Any, cu_chunk_seqlens: Any, last_chunk_indices: Any,
    seq_idx: Any, out: Any, D: Any = None, z: Any = None, dt_bias: Any = None, initial_states: Any = None,
    dt_softplus: bool = False, dt_limit: Any = None, return_intermediate_states: bool = False, state_dtype: Any = None,
    final_states_out: Any = None, final_state_indices: Any = None,
) -> Any:  # fmt: skip
    """x, out: [tokens, heads, d]. Returns the states behind each chunk, or those behind each sequence, unless they are written
    to `final_states_out`.

    A sequence's states go from chunk to chunk by `last_chunk_indices`; a chunk's outputs begin with the state of the one before
    it, or where `seq_idx` changes with an initial one. Of a chunk that is longer than `chunk_size` the rest is not computed."""
    if z is not None:
        raise NotImplementedError("this stand-in has no gate")
    bounds, sequences, lasts = cu_chunk_seqlens.tolist(), seq_idx.tolist(), last_chunk_indices.tolist()
    shape = len(sequences), x.shape[1], x.shape[2], B.shape[2]
    states = torch.empty(shape, dtype=state_dtype or C.dtype)
    nothing = torch.zeros(shape[1:], dtype=torch.float64)

    steps = _steps(x, dt, A, B, dt_bias, dt_softplus)

    def ran(chunk: int, held: Any) -> tuple[slice, Any]:
        tokens = slice(bounds[chunk], min(bounds[chunk + 1], bounds[chunk] + chunk_size))
        return tokens, _run(held, *(each[tokens] for each in steps))

    begin, finals = 0, []
    for sequence, last in enumerate(lasts):
        held = nothing if initial_states is None else initial_states[sequence].double()
        for chunk in range(begin, last + 1):
            held = ran(chunk, held)[1][-1]
            states[chunk] = held.to(states.dtype)
        finals.append(held)
        begin = last + 1
    for chunk, sequence in enumerate(sequences):
        if chunk and sequences[chunk - 1] == sequence:
            held = states[chunk - 1].double()
        else:
            held = nothing if initial_states is None else initial_states[sequence].double()
        tokens, after = ran(chunk, held)
        out[tokens] = _seen(after, x[tokens], C[tokens], D).to(out.dtype)
    if return_intermediate_states:
        return states
    if final_states_out is None:
        return states[last_chunk_indices.long()]
    for block, held in zip(final_state_indices.tolist(), finals):
        final_states_out[block] = held.to(final_states_out.dtype)
    return None


def stand_in() -> None:
    """Before the engine's layers import the names."""
    for module, kernels in {
        "causal_conv1d": (causal_conv1d_fn, causal_conv1d_update),
        "ssd_combined": (mamba_chunk_scan_combined_varlen,),
        "mamba_ssm": (selective_state_update,),
    }.items():
        for kernel in kernels:
            setattr(import_module(f"{_OPS}.{module}"), kernel.__name__, kernel)
