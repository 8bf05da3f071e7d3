"""Correction of sglang.mamba2-tensor-parallel.

A rank's output projection of a Mamba2 layer gives a part of a sum. Falcon-H1 adds the parts behind the layer; Nemotron-H does
not. The projection of a layer of Nemotron-H is told to add them, as that of its attention does.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch

_GROUPS = "sglang.srt.distributed.parallel_state"


def on_several_ranks(target: Any, instance: Any) -> bool:
    """Whether ranks have parts of the same tokens. With DP attention each has tokens of its own."""
    if sys.modules[_GROUPS].get_tensor_model_parallel_world_size() == 1:
        return False
    return not getattr(launch.server_args(), "enable_dp_attention", False)


def init(call: Call, instance: Any) -> Any:
    result = call()
    if not instance.mixer.out_proj.reduce_results:
        add(instance.mixer.out_proj)
        call.corrected()
    return result


def add(projection: Any) -> None:
    """What the projection does with the ranks' parts."""
    projection.reduce_results = True
