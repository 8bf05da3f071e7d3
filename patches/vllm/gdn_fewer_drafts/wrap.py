"""Correction of vllm.gdn-fewer-drafts: a convolution that takes requests of different lengths."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared.marked_steps import metadata_of

#: Set at the metadata of a step with fewer drafts: for each length, rows of verified requests, and places of their tokens
MARK, _KERNEL = "attnfix_lengths", "causal_conv1d_update"


def may_have_fewer_drafts(target: Any, instance: Any, common_attn_metadata: Any, num_draft_tokens: Any = None) -> bool:
    """Whether a step that verifies drafts has a request of more tokens than one, and fewer than a verification of all drafts.

    num_draft_tokens: int32 [requests], of a GPU; it is there where a request has drafts.
    """
    if num_draft_tokens is None or not instance.use_spec_decode:
        return False
    starts = common_attn_metadata.query_start_loc_cpu.numpy()
    lengths = starts[1:] - starts[:-1]
    return bool(((lengths > 1) & (lengths <= instance.num_spec)).any())


def build(call: Call, instance: Any) -> Any:
    """What the engine builds. Where buffers of full graphs cut off requests, it builds once more, without them: such graphs run
    for steps of whole verifications alone."""
    metadata = call()
    if metadata.spec_sequence_masks is None:
        return metadata
    starts = metadata.spec_query_start_loc[: metadata.num_spec_decodes + 1]
    cut = len(starts) <= metadata.num_spec_decodes or len(metadata.spec_state_indices_tensor) < metadata.num_spec_decodes
    if cut:
        metadata = without_buffers(call, instance)
        starts = metadata.spec_query_start_loc
    lengths = [end - start for start, end in pairwise(starts.tolist())]
    alone = not metadata.num_prefills and not metadata.num_decodes
    if set(lengths) == {1 + instance.num_spec} or (alone and not cut and len(set(lengths)) == 1):
        return metadata
    groups = [grouped(lengths, length, starts) for length in sorted(set(lengths))]
    metadata.num_spec_decode_tokens = sum(lengths)
    setattr(metadata, MARK, groups)
    call.corrected(len(lengths))
    return metadata


def without_buffers(call: Call, instance: Any) -> Any:
    full, instance.use_full_cuda_graph = instance.use_full_cuda_graph, False
    try:
        return call()
    finally:
        instance.use_full_cuda_graph = full


def grouped(lengths: list[int], length: int, starts: Any) -> tuple[Any, Any]:
    """Rows of requests of this length, int64 [rows], and places of their tokens, int64 [rows, length].

    starts: int32 [requests + 1], of a GPU.
    """
    import torch

    rows = torch.tensor([row for row, other in enumerate(lengths) if other == length], device=starts.device)
    return rows, starts[rows].long().unsqueeze(1) + torch.arange(length, device=starts.device)


def is_marked(target: Any, instance: Any) -> Any:
    return metadata_of(target, instance, MARK)


def forward(call: Call, instance: Any) -> Any:
    """The engine's own code, whose kernel runs for each length that verified requests have.

    The code shares out tokens among verified requests, and cuts their slots and starts at as many. With the number of tokens in
    the place of that of requests, each token stands alone, and nothing is cut.
    """
    function, metadata = call.target.function, call.found
    stock, groups = function.__globals__[_KERNEL], getattr(metadata, MARK)

    def update(x: Any, *args: Any, conv_state_indices: Any, num_accepted_tokens: Any = None, **more: Any) -> Any:
        """x: [tokens, channels, 1] where drafts are verified."""
        if num_accepted_tokens is None:
            return stock(x, *args, conv_state_indices=conv_state_indices, **more)
        for rows, places in groups:
            taken = x[places, :, 0].transpose(1, 2)
            indices = {"conv_state_indices": conv_state_indices[rows], "num_accepted_tokens": num_accepted_tokens[rows]}
            x[places, :, 0] = stock(taken, *args, **indices, **more).transpose(1, 2)
        return x

    def evenly(x: Any, *args: Any, conv_state_indices: Any, num_accepted_tokens: Any = None, **more: Any) -> Any:
        """What the engine does without the correction, or the error that it ends with."""
        taken = x if num_accepted_tokens is None else x.view(requests, -1, x.shape[1]).transpose(1, 2)
        indices = {"conv_state_indices": conv_state_indices[: len(taken)], "num_accepted_tokens": num_accepted_tokens}
        out = stock(taken, *args, **indices, **more)
        return out if num_accepted_tokens is None else out.transpose(1, 2).reshape(x.shape)

    requests, metadata.num_spec_decodes = metadata.num_spec_decodes, metadata.num_spec_decode_tokens
    try:
        result = call.run(rebound(function, **{_KERNEL: call.guard(update, evenly)}))
    finally:
        metadata.num_spec_decodes = requests
    call.corrected()
    return result
