"""What decides vllm.pooling-chunk-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import async_scheduling

#: Beginnings of architectures whose tokens attend both ways: their prompts are computed whole
_WHOLE = "Bert", "DistilBert", "ModernBert", "Roberta", "XLMRoberta", "NomicBert", "Gte", "SnowflakeGte", "JinaBert"
_GENERATES = "ForCausalLM", "ForConditionalGeneration"


def _ahead(it: Deployment) -> Fact:
    """From 0.20.0 on pooling models are scheduled ahead only where it is asked for."""
    name = "async-scheduling"
    return known(OFF, f"vLLM {it.release}, pooling") if it.since("0.20.0") and not it.given(name) else async_scheduling(it)


def _runner(it: Deployment) -> Fact:
    asked = it.option("runner", "auto")
    if asked.values and asked.values != ("auto",):
        return asked
    if it.given("convert", "task"):
        return unknown("--convert and --task may ask for either; set --runner")
    if not asked.values or it.config is None:
        return unknown(NO_CONFIG if it.config is None else asked.why)
    name = str(it.architecture())
    return known("generate" if name.endswith(_GENERATES) else "pooling", f"architecture {name}")


def _chunks(it: Deployment) -> Fact:
    asked = it.option("enable-chunked-prefill", ON)
    if it.given("enable-chunked-prefill") or not asked.values:
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    return known(OFF if str(it.architecture()).startswith(_WHOLE) else ON, f"architecture {it.architecture()}")


FACTS: Makers = {"pooling models ahead of results": _ahead, "runner": _runner, "prompts in chunks": _chunks}
