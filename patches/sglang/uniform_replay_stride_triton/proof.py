"""Proof of sglang.uniform-replay-stride-triton: draft extend of one to eight requests through graphs captured for fewer sizes.

What is real and what is emulated stands in `patches/lab/sglang/draft_extend_triton.py`.

Up to 0.5.12.post1 the prefix is another bug's (sglang.triton-draft-double-count): kv_indptr counts the step's own tokens, too,
and the kernel, which is handed them separately, attends to them twice. So the reference attends to as many cached tokens as
the release's kv_indptr says, either to all or to those before the step; which of them is asked once per batch, and anything
else is an error. Only the layout of the queries is judged.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.sglang import draft_extend_graph as graphs
from attnfix.patches.lab.sglang import draft_extend_triton as triton
from attnfix.patches.lab.sglang.draft_extend_graph import Requests


class Step(triton.Step):
    def cached(self, requests: Requests, metadata: Any) -> list[int]:
        """Cached tokens of each request that the kernel attends to, by this release's own count if it is one of the two."""
        taken = metadata.kv_indptr[: len(requests.prefix) + 1].diff().tolist()
        all_of_them = [prefix + new for prefix, new in zip(requests.prefix, requests.new)]
        return all_of_them if taken == all_of_them else list(requests.prefix)


class Proof(triton.DraftExtend):
    step = Step

    def sabotages(self) -> dict[str, Any]:
        return graphs.stride_sabotages()
