"""Correction of sglang.mamba2-prefill-graph.

A prefill graph is captured as segments with breaks between them, and what a break holds runs anew at each replay. The engine
breaks at attention, and at the Mamba2 layers of models that have a function of their own for it. Here, the backend breaks
wherever it is called within a segment.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

_UTILS = "sglang.srt.model_executor.runner_backend_utils."
BREAKS = _UTILS + "breakable_cuda_graph.breakable_cuda_graph"
CONTEXT = _UTILS + "tc_piecewise_cuda_graph.context_manager"


def in_segment(target: Any, instance: Any, forward_batch: Any) -> Any:
    """The engine's module of breaks, where this call would be captured as part of a prefill graph.

    Within a break, no segment is open. Decode graphs are captured with metadata that each replay fills in.
    """
    breaks = sys.modules.get(BREAKS)
    capture = breaks._current_capture_var.get() if breaks else None
    segment = getattr(capture, "_current_graph", None)
    return segment is not None and forward_batch.forward_mode.name == "EXTEND" and breaks


def forward(call: Call, instance: Any, hidden_states: Any, output: Any) -> Any:
    """hidden_states, output: [tokens of the graph, hidden], of which the batch of a replay has fewer. A NemotronH gives no
    output: the layer makes its own, which the next segment could not find again."""
    import torch

    batch, given = sys.modules[CONTEXT].get_tc_piecewise_forward_context, output is not None
    output = output if given else torch.empty_like(hidden_states)

    def eager(hidden_states: Any, output: Any) -> None:
        tokens = tokens_of(instance.forward_metadata)
        new, out = of_the_batch(hidden_states, tokens), of_the_batch(output, tokens)
        result = call(hidden_states=new, output=out if given else None, forward_batch=batch().forward_batch)
        if not given:
            out.copy_(result)
        output[tokens:].zero_()

    def unchanged(hidden_states: Any, output: Any) -> None:
        result = call()
        if not given:
            output.copy_(result)

    call.found.eager_on_graph(True)(call.guard(eager, unchanged))(hidden_states, output)
    call.corrected()
    return output


def tokens_of(metadata: Any) -> int:
    """Tokens of the batch whose metadata the backend has: new ones of prompts, and one of each request that decodes."""
    return int(metadata.num_prefill_tokens + metadata.num_decodes)


def of_the_batch(rows: Any, tokens: int) -> Any:
    """A view: the layer writes into it."""
    return rows[:tokens]
