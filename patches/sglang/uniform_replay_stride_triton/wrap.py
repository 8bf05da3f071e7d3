"""Correction of sglang.uniform-replay-stride-triton.

The engine takes the lengths as they are: the length to show is the stride of the graph, `speculative_num_steps + 1`, and one
more for each layer before this one under --enable-multi-layer-eagle.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import uniform_replay


def init_forward_metadata_replay_cuda_graph(call: Call, instance: Any, bs: int, seq_lens: Any, spec_info: Any) -> Any:
    """Metadata of spec v2's draft-extend graph by the graph's number of tokens per request."""
    return uniform_replay.replay(call, instance, bs, spec_info, seq_lens.device, _sizes)


def _sizes(backend: Any, spec_info: Any) -> tuple[int, int]:
    return uniform_replay.stride(spec_info, backend.speculative_num_steps + 1), backend.qo_indptr.shape[0] - 1
