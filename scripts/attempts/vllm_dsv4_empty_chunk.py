"""An attempt at vLLM's DeepSeek-V4 prefill chunks that hold no token (upstream pull 49302, issues 54179, 52339): no fix.

    PYTHONPATH=<folder of a release> ATTNFIX=0 python -m scripts.attempts.vllm_dsv4_empty_chunk

The report: on Hopper the engine dies in the sparse prefill kernel (phase1.cuh) where a batch is padded to a graph's number
of requests, since a chunk of padding alone reaches the kernel with no query row.

This asks the engine's own plan of chunks, `DeepseekSparseSWAMetadata.get_prefill_chunk_plan`, about prompts with rows of
padding behind them, and says which chunks have no token. Its input is the engine's dataclass with the fields that the plan
reads; that padded rows are counted as prefills is not shown here: it takes the engine's runner and a graph.

Seen, in 0.25.1, 0.26.0, 0.27.0, 0.28.0 and 0.33.0 alike: one long prompt with seven rows of padding gives a chunk of padding
alone, as the plan compares areas by the width of the widest row. So the plan alone does not part the releases that die from
those that do not: what upstream changed lies elsewhere, in who counts rows, or in the kernel. Without the kernel there is no
red, and without one no fix.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_HOMES = "vllm.v1.attention.backends.mla.sparse_swa", "vllm.models.deepseek_v4.sparse_swa"
_WINDOW, _CONTEXT, _BATCHED, _CHUNKS = 128, 16384, 8192, 4


def plan(cls: Any, new: list[int], cached: list[int], ratio: int) -> list[tuple[int, ...]]:
    """[(first row, row behind, …)] of rows with so many new and cached tokens."""
    import torch

    starts = torch.tensor([0, *new]).cumsum(0).int()
    lens = torch.tensor([a + b for a, b in zip(new, cached)], dtype=torch.int32)
    metadata = cls(
        block_table=None, slot_mapping=None, block_size=64, query_start_loc_cpu=starts, num_prefills=len(new),
        num_prefill_tokens=sum(new), prefill_seq_lens_cpu=lens, prefill_query_lens_cpu=starts[1:] - starts[:-1],
        prefill_window_size=_WINDOW, prefill_max_model_len=_CONTEXT, prefill_max_num_batched_tokens=_BATCHED,
    )  # fmt: skip
    return list(metadata.get_prefill_chunk_plan(ratio, _CHUNKS))


def main() -> int:
    from attnfix.prove import stubs

    stubs.install("vllm")
    for name in _HOMES:
        try:
            cls = import_module(name).DeepseekSparseSWAMetadata
            break
        except (ModuleNotFoundError, AttributeError):
            continue
    else:
        print("no DeepseekSparseSWAMetadata here")
        return 2
    for what, new in (("one long prompt", [8000]), ("one long prompt and seven rows of padding", [8000] + [0] * 7)):
        for ratio in (1, 4):
            chunks = plan(cls, new, [0] * len(new), ratio)
            empty = [chunk[:2] for chunk in chunks if not sum(new[chunk[0] : chunk[1]])]
            print(f"{what}, compressed by {ratio}: chunks {[chunk[:2] for chunk in chunks]}, without a token {empty}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
