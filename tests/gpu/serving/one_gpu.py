"""A test-only vLLM plugin: all ranks of a server on one GPU, where a machine has no second one.

A worker takes the GPU of its local rank; here each takes the first. NCCL has to agree: from 2.30 on it does with
NCCL_MULTI_RANK_GPU_ENABLE=1. Where torch brings an older one, LD_PRELOAD and VLLM_NCCL_SO_PATH name another. Ranks take turns
on the GPU, so such a run says nothing about speed.
"""

from __future__ import annotations

import functools
from typing import Any

NAME = "attnfix-test-one-gpu"


def install() -> None:
    """The plugin's entry point, called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    init_device = Worker.init_device

    @functools.wraps(init_device)
    def on_the_first(self: Any) -> None:
        self.local_rank = 0
        init_device(self)

    Worker.init_device = on_the_first
