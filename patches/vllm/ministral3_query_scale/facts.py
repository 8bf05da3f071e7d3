"""What decides vllm.ministral3-query-scale alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_BETA, _ORIGINAL = "llama_4_scaling_beta", "original_max_position_embeddings"
_MODELS = "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"


def _unread(it: Deployment) -> Fact:
    """Whether config.json scales queries where the engine does not look."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    if it.architecture() not in _MODELS or not (text.get("rope_parameters") or {}).get(_BETA):
        return known(OFF, f"config.json has no {_BETA} of Ministral 3")
    if text.get("llama_4_scaling") is not None:
        return known(OFF, "config.json has llama_4_scaling")
    if it.release is not None and not it.since("0.20.0"):
        return known(OFF, f"vLLM {it.release} has no Ministral 3 of its own in this format")
    if (impl := it.option("model-impl", "auto")).values == ("transformers",):
        return known(OFF, f"{impl.why} transformers")
    return known(ON, f"{_BETA} in config.json")


def _grows_beyond(it: Deployment) -> Fact:
    """Whether requests may grow beyond the length up to which queries are multiplied by 1."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    original = (text.get("rope_parameters") or {}).get(_ORIGINAL)
    asked = it.number("max-model-len", text.get("max_position_embeddings"))
    if not asked.values or not isinstance(original, int):
        return asked if not asked.values else known(OFF, f"config.json has no {_ORIGINAL}")
    longest = int(asked.values[0])  # -1: what memory holds
    if longest < 0:
        return Fact((ON, OFF), f"{asked.why} {longest}, the original length {original}")
    return known(ON if longest > original else OFF, f"{asked.why}: {longest}, the original length {original}")


FACTS: Makers = {"scaling of queries that is not read": _unread, "lengths beyond the original of query scaling": _grows_beyond}
