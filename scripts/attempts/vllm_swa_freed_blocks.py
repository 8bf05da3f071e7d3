"""Attempt at vllm.swa-freed-blocks: are blocks that a window has freed still read, and does NaN in them reach an answer?

    PYTHONPATH=<folder of a release> ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.vllm_swa_freed_blocks

Two questions, each to the engine's own code.
1. Tables: a hybrid model with a layer that has a window. A request outgrows the window, and another one takes the freed blocks
   for its recurrent states. What does the row hold that Model Runner V2 gives to the window's layer? Seen in 0.31.0: the ids of
   the freed blocks, of which one holds a state now. By its code, 0.33.0 gives the null block.
2. Kernel: Triton's unified attention, interpreted, with NaN in all that is below the window, so that a tile of keys begins
   within it. Seen in 0.31.0: the answer is finite, and to the bit that with zeros there. The kernel masks scores, and
   the values below the window, too; the same mask stands in the code of 0.20.0, 0.25.0 and 0.33.0, which were not run.
So with Triton's backend no harm was seen. What is left are kernels that multiply masked values by zero; they run on a GPU
alone, and were not tried: no fix is made of this. By its code (0.6.18), FlashInfer's FA2, which decodes on tensor cores, begins
with the first key that the first row sees: it reads no freed block. FlashAttention, and FlashInfer's FA3, begin with a tile.
A differential run with a stand-in that reads such tiles came across it in 0.29.0: a drafter with a window and an FP8 cache
returns NaN, since a block that it had freed holds bfloat16 keys of the model's own layer by then, of the same request. With the
null block in its row, as 0.33.0 puts it there, it is right.
In 0.33.0 the rows are left as they are under decode context parallelism. A target's window is refused there; a drafter whose
group is replicated is not, so beside recurrent states it still reads such blocks.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from inspect import signature
from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.prove import stubs

_WINDOW, _BUFFERS = 32, "vllm.v1.worker.gpu.buffer_utils"


def tables() -> None:
    """Prints the rows of a request that has outgrown its window, and which blocks hold states by then."""
    import torch

    from attnfix.patches.lab.vllm.scheduling import QWEN3_NEXT, Engine

    model = {**QWEN3_NEXT, "num_hidden_layers": 2, "full_attention_interval": 2}
    cls: Any = import_module("vllm.v1.worker.gpu.block_table").BlockTables
    buffers: Any = import_module(_BUFFERS)
    views = [name for name in vars(buffers) if name.startswith("get_") and name.endswith("view_from_cpu_tensor")]
    with ExitStack() as stack:
        stack.enter_context(replaced(buffers, "is_uva_available", lambda: True))
        for name in views:
            stack.enter_context(replaced(buffers, name, lambda tensor: tensor))
        engine = stack.enter_context(
            Engine(model, drafter={"per_layer_sliding_window": _WINDOW}, caching=False, blocks=24, context=256)
        )
        groups = engine.kv_cache_config.kv_cache_groups
        kinds = [type(group.kv_cache_spec).__name__ for group in groups]
        windowed, states = kinds.index("SlidingWindowSpec"), kinds.index("MambaSpec")
        sizes = [group.kv_cache_spec.block_size for group in groups]
        spec = groups[windowed].kv_cache_spec
        given = dict(
            block_sizes=sizes, kernel_block_sizes=sizes, max_num_reqs=4, max_num_batched_tokens=256, device=torch.device("cpu"),
            max_num_blocks_per_group=[-(-256 // size) for size in sizes],
            sliding_window_reach=[getattr(spec, "num_retained_tokens", 0) if at == windowed else 0 for at in range(len(sizes))],
        )  # fmt: skip
        rows = cls(**{name: given[name] for name in signature(cls.__init__).parameters if name in given})
        manager = engine.scheduler.kv_cache_manager
        grown, taken, computed = engine.add(range(3, 100), output=30), [], torch.zeros(4, dtype=torch.int32)
        for at in range(20):
            step = engine.schedule()
            for request in step.scheduled_new_reqs:
                if request.req_id == grown.request_id:
                    rows.append_block_ids(0, request.block_ids, overwrite=True)
            for name, new in zip(step.scheduled_cached_reqs.req_ids, step.scheduled_cached_reqs.new_block_ids):
                if name == grown.request_id and new is not None:
                    rows.append_block_ids(0, new, overwrite=False)
            rows.apply_staged_writes()
            engine.finish(step, {name: [7] for name in step.num_scheduled_tokens})
            if at in (4, 8, 12):
                taken.append(engine.add(range(3, 20), output=30))
        computed[0] = grown.num_computed_tokens - 1
        masks = "num_computed_tokens" in signature(cls.gather_block_tables).parameters
        more = {"num_computed_tokens": computed} if masks else {}
        row = rows.gather_block_tables(torch.zeros(1, dtype=torch.int32), num_reqs_padded=1, **more)[windowed][0]
        of_manager = [int(block) for block in manager.get_block_ids(grown.request_id)[windowed]]
        held = {int(block) for request in taken for block in manager.get_block_ids(request.request_id)[states]} - {0}
        found = row[: len(of_manager)].tolist()
        print("sizes of blocks", dict(zip(kinds, sizes)), "tokens", int(computed[0]) + 1, "window", _WINDOW)
        print("row of the runner ", found)
        print("row of the manager", of_manager)
        print("freed, in the row, and a state of another request:", sorted(held & set(found) - set(of_manager)))


def kernel() -> None:
    """Prints whether NaN below the window changes a bit of what Triton's unified attention returns."""
    import torch

    module: Any = import_module("vllm.v1.attention.ops.triton_unified_attention")
    draw = torch.Generator().manual_seed(1)
    lens, new, size, heads, d = [75, 90, 139], [1, 3, 9], 16, 2, 64
    pages = -(-max(lens) // size)
    table = torch.arange(1, 1 + len(lens) * pages, dtype=torch.int32).view(len(lens), pages)
    cache = torch.randn(2, 1 + table.numel(), size, heads, d, generator=draw)
    q = torch.randn(sum(new), 2 * heads, d, generator=draw)
    starts = torch.tensor([0, *new]).cumsum(0).int()
    below = [(n - m) - _WINDOW + 1 for n, m in zip(lens, new)]  # tokens that no query of the step sees
    results = []
    for fill in (0.0, float("nan")):
        k, v = cache.clone()
        for row, tokens in zip(table.tolist(), below):
            for page in row[: tokens // size]:
                k[page], v[page] = fill, fill
        out = torch.zeros_like(q)
        given = dict(
            q=q, k=k, v=v, out=out, cu_seqlens_q=starts, max_seqlen_q=max(new), seqused_k=torch.tensor(lens, dtype=torch.int32),
            max_seqlen_k=max(lens), softmax_scale=d**-0.5, causal=True, window_size=(_WINDOW - 1, 0), block_table=table,
            softcap=0.0, q_descale=None, k_descale=torch.ones(len(lens), heads), v_descale=torch.ones(len(lens), heads),
        )  # fmt: skip
        module.unified_attention(**given)
        results.append(out)
    print("finite:", bool(torch.isfinite(results[1]).all()), "bits as with zeros:", torch.equal(*results))


def main() -> None:
    stubs.install("vllm")
    kernels.stand_in()
    tables()
    kernel()


if __name__ == "__main__":
    main()
