"""What decides vllm.pooling-chunk-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import async_scheduling

_V2 = "VLLM_USE_V2_MODEL_RUNNER"
#: Ends of architectures that the engine serves for pooling
_POOLS = (
    "ForSequenceClassification", "ForTokenClassification", "ForTextEncoding", "EmbeddingModel", "RewardModel",
    "ForRewardModeling", "ClassificationModel",
)  # fmt: skip
#: Beginnings of architectures whose tokens attend both ways: their prompts are computed whole
_WHOLE = "Bert", "DistilBert", "ModernBert", "Roberta", "XLMRoberta", "NomicBert", "Gte", "SnowflakeGte", "JinaBert"


def _ahead(it: Deployment) -> Fact:
    """From 0.20.0 on pooling models are scheduled ahead only where it is asked for."""
    name = "async-scheduling"
    return known(OFF, f"vLLM {it.release}, pooling") if it.since("0.20.0") and not it.given(name) else async_scheduling(it)


def _runner(it: Deployment) -> Fact:
    if it.truth(_V2):
        return known("V2", f"${_V2}")
    asked = it.option("runner", "auto")
    if asked.values and asked.values != ("auto",):
        return asked
    name = str(it.architecture()) if it.config is not None else ""
    if asked.values and name.endswith(_POOLS) and not it.given("convert", "task"):
        return known("pooling", f"architecture {name}")
    return unknown("files of the model, --convert and --task may ask for pooling; set --runner")


def _chunks(it: Deployment) -> Fact:
    name = "enable-chunked-prefill"
    if it.given(name):
        return it.option(name)
    if it.config is not None and str(it.architecture()).startswith(_WHOLE):
        return known(OFF, f"architecture {it.architecture()}")
    why = NO_CONFIG if it.config is None else f"models that pool all tokens, or attend both ways, have none; set --{name}"
    return Fact((ON, OFF), why)


FACTS: Makers = {"pooling models ahead of results": _ahead, "runner": _runner, "prompts in chunks": _chunks}
