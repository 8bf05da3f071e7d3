"""Correction of sglang.uniform-replay-stride-mla.

The engine adds one to every length it reads here. So the length to show is one less than the graph's stride.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import uniform_replay


def init_forward_metadata_replay_cuda_graph(call: Call, instance: Any, bs: int, seq_lens: Any, spec_info: Any) -> Any:
    """Metadata of spec v2's draft-extend graph by the graph's number of query tokens per request, `num_draft_tokens`."""
    return uniform_replay.replay(call, instance, bs, spec_info, seq_lens.device, _sizes)


def _sizes(backend: Any, spec_info: Any) -> tuple[int, int]:
    return uniform_replay.stride(spec_info, backend.num_draft_tokens) - 1, backend.decode_cuda_graph_kv_indices.shape[0]
