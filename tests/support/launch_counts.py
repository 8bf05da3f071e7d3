"""How often each path of each op was taken: what a test of the kernels must not leave to chance."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from attnfix.kernels import kernel_status


@contextlib.contextmanager
def cuda_launches(fixup: int = 0, merge: int = 0) -> Iterator[None]:
    """Exactly this many kernel launches of each op in the block, and none served by the reference."""
    before = kernel_status()
    yield
    torch.cuda.synchronize()
    for op, expected in (("fixup_zero_kv_rows", fixup), ("merge_attn_states", merge)):
        now, then = (status[op]["launches"] for status in (kernel_status(), before))
        reason = kernel_status()[op]["reason"]
        assert now["reference"] == then["reference"], f"{op} was served by the reference: {reason}"
        assert now["cuda"] - then["cuda"] == expected, op
