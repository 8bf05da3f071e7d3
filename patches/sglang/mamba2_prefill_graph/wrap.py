"""Correction of sglang.mamba2-prefill-graph.

A prefill graph is captured as segments with breaks between them, and what a break holds runs anew at each replay. The engine
breaks at attention, and at the Mamba2 layers of models that have a function of their own for it. While a graph is captured,
the Mamba2 backend breaks here wherever a model calls it within a segment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

_UTILS = "sglang.srt.model_executor.runner_backend_utils."
BREAKS = _UTILS + "breakable_cuda_graph.breakable_cuda_graph"
CONTEXT = _UTILS + "tc_piecewise_cuda_graph.context_manager"


def has_mamba2(target: Any, instance: Any) -> Any:
    """The backend of the server's Mamba2 layers; None where it has none. Heirs were not read."""
    backend = getattr(instance._model_runner.attn_backend, "linear_attn_backend", None)
    return backend if type(backend).__name__ == "Mamba2AttnBackend" else None


def capture_one(call: Call, instance: Any) -> Any:
    backend = call.found
    with attribute(backend, "forward", breaking(call, backend, backend.forward)):
        return call()


def breaking(call: Call, backend: Any, layer: Callable[..., Any]) -> Callable[..., Any]:
    """The backend's `forward`, as a break where a segment is open."""
    breaks, context = sys.modules[BREAKS], sys.modules[CONTEXT]
    parameters = signature(layer)

    def prepared(*args: Any, **kwargs: Any) -> Any:
        """A function for the break, and its tensors [tokens of the graph, hidden]; None outside of a segment.

        The function lives as long as the graph, and holds no tensor of the capture: their memory serves later layers, too.
        """
        import torch

        given = dict(parameters.bind(*args, **kwargs).arguments)
        if not in_segment(breaks, given.pop("forward_batch")):
            return None
        hidden_states, output = given.pop("hidden_states"), given.pop("output")
        gives = output is not None

        def eager(hidden_states: Any, output: Any) -> None:
            """The batch of a replay has fewer tokens than the graph."""
            tokens = tokens_of(backend.forward_metadata)
            new, out = of_the_batch(hidden_states, tokens), of_the_batch(output, tokens)
            batch = context.get_tc_piecewise_forward_context().forward_batch
            result = layer(hidden_states=new, output=out if gives else None, forward_batch=batch, **given)
            if not gives:
                out.copy_(result)
            output[tokens:].zero_()

        # A NemotronH gives no room: the layer makes its output itself, where the next segment would not find it again
        return eager, hidden_states, output if gives else torch.empty_like(hidden_states)

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    prepare = call.guard(prepared, nothing, plans=True)

    @wraps(layer)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not (found := prepare(*args, **kwargs)):
            return layer(*args, **kwargs)
        eager, hidden_states, output = found
        breaks.eager_on_graph(True)(eager)(hidden_states, output)
        call.corrected()
        return output

    return forward


def in_segment(breaks: Any, forward_batch: Any) -> bool:
    """Whether a call would be captured as part of a prefill graph. Within a break, no segment is open. Decode graphs have
    metadata that each replay fills in."""
    segment = getattr(breaks._current_capture_var.get(), "_current_graph", None)
    return segment is not None and forward_batch.forward_mode.name == "EXTEND"


def tokens_of(metadata: Any) -> int:
    """Tokens of the batch whose metadata the backend has: new ones of prompts, and one of each request that decodes."""
    return int(metadata.num_prefill_tokens + metadata.num_decodes)


def of_the_batch(rows: Any, tokens: int) -> Any:
    """A view: the layer writes into it."""
    return rows[:tokens]
