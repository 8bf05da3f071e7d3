"""What decides sglang.gemma3-text-bidirectional alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs

_MODELS = "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"
_BOTH_WAYS = "use_bidirectional_attention"


def _text(it: Deployment) -> Fact:
    """Whether the model is a Gemma 3 that writes text."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.architecture() in _MODELS and it.text_config().get(_BOTH_WAYS):
        return known(OFF, f"config.json says {_BOTH_WAYS}")
    return known(ON if it.architecture() in _MODELS else OFF, f"architecture {it.architecture()}")


def _graphs(it: Deployment) -> Fact:
    """Whether any phase runs in CUDA graphs. Up to 0.5.13.post1 the switch of decode's is asked alone."""
    decode = cuda_graphs(it)
    if decode.values != (OFF,) or it.given("disable-cuda-graph") or not it.since("0.5.14"):
        return decode
    prefill = it.option("cuda-graph-backend-prefill")
    if it.given("disable-prefill-cuda-graph") or prefill.values == ("disabled",):
        return known(OFF, f"{decode.why}, prefill without CUDA graphs")
    return unknown("whether prefill has no CUDA graphs, either")


def _chunks(it: Deployment) -> Fact:
    """Whether long prompts come in chunks: all servers have a size, and -1 turns that off."""
    size = it.number("chunked-prefill-size", 1)
    return Fact(tuple(OFF if value == -1 else ON for value in size.values), size.why)


FACTS: Makers = {
    "Gemma 3 that writes text": _text,
    "CUDA graphs of any phase": _graphs,
    "prompts in chunks": _chunks,
}
