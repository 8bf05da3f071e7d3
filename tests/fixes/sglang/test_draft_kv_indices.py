"""sglang.draft-kv-indices on a real release: what the wider buffer takes of the memory that CUDA graphs are captured in."""

from __future__ import annotations

#: `width(free)`: indices per request in the buffer, where so many bytes of the GPU are free; with `available`, on a machine
#: whose GPU has no memory of its own, and whose page cache holds the rest of what is available
CODE = """
import attnfix, psutil, torch
from contextlib import ExitStack
from types import SimpleNamespace
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.lab.sglang import construction, engine
from attnfix.patches.lab.proof import replaced

served = construction.serve(
    "--attention-backend", "flashinfer", "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3",
    "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8", "--max-running-requests", "8",
)
backend = served.draft_steps("flashinfer_backend:FlashInferMultiStepDraftBackend")
CONTEXT, STEPS, TOPK, SIZE = served.model_config.context_len, 3, 4, 4
OWN, WIDE = (4 * STEPS * SIZE * width for width in (CONTEXT, TOPK * (CONTEXT + STEPS)))
zeros, asked = torch.zeros, []

def counted(*args, **kwargs):
    asked.append(args[0])
    if refuse:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return zeros(*args, **kwargs)

def width(free, available=None):
    asked.clear()
    gpu = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, current_device=lambda: 0, mem_get_info=lambda *_: (free, 2 * free),
        get_device_properties=lambda *_: SimpleNamespace(is_integrated=available is not None),
    )
    with ExitStack() as stack:
        for name, function in vars(gpu).items():
            stack.enter_context(replaced(torch.cuda, name, function))
        stack.enter_context(replaced(psutil, "virtual_memory", lambda: SimpleNamespace(available=available)))
        stack.enter_context(replaced(torch, "zeros", counted))
        stack.enter_context(engine.on_cpu())
        backend.init_cuda_graph_state(SIZE, SIZE * TOPK)
    return backend.cuda_graph_kv_indices.shape[1] // SIZE

def row():
    found = next(row for row in attnfix.status() if row["fix"] == "sglang.draft-kv-indices")
    return found["state"], found["reason"]

def buffers():
    return [shape for shape in asked if len(shape) == 2 and shape[0] == STEPS]

refuse, enough = False, OWN + 4 * (WIDE - OWN)
"""
ENOUGH = """
wide = width(enough), len(buffers()), row()[0]
refuse = True
try:
    width(enough)
except torch.OutOfMemoryError:
    wide += len(buffers()), row()[0]
answer(wide)
"""
UNIFIED = "answer((width(OWN, available=enough), row()[0]))"
TIGHT = "answer((width(enough - 64), len(buffers()), *row()))"


def test_the_wider_buffer_leaves_three_quarters_of_the_memory_to_capture(engine_fork):
    """Stock leaves `free - own` bytes. What takes more than a quarter of them is left to the engine, aloud. In both cases, and
    where the engine cannot allocate, it is called once."""
    environment = engine_fork("sglang", "0.5.12.post1")
    assert environment.evaluate(CODE + ENOUGH) == [4 * (128 + 3), 1, "effective", 1, "effective"]
    width, buffers, state, reason = environment.evaluate(CODE + TIGHT)
    assert (width, buffers, state) == (128, 1, "failed") and "a quarter" in reason


def test_memory_that_the_page_cache_holds_counts_where_the_gpu_has_none_of_its_own(engine_fork):
    """Orin, Thor, Spark: CUDA's free memory is what no file is cached in, and the engine goes by what is available."""
    environment = engine_fork("sglang", "0.5.12.post1")
    assert environment.evaluate(CODE + UNIFIED) == [4 * (128 + 3), "effective"]
