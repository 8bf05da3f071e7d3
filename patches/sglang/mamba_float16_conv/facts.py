"""What decides sglang.mamba-float16-conv alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_VARIABLE = "SGLANG_MAMBA_CONV_DTYPE"
_DTYPES = ("float32", "bfloat16", "float16")
_SAME = {"half": "float16", "float": "float32"}


def _other_dtype(it: Deployment) -> Fact:
    """Whether the states of convolutions have another dtype than the model. The variable's default is bfloat16."""
    model, states = _model_dtype(it), it.variables().get(_VARIABLE)
    if not model.values:
        return model
    states = states if states in _DTYPES else "bfloat16"
    return known(OFF if model.values == (states,) else ON, f"{model.why}, {_VARIABLE}: {states}")


def _model_dtype(it: Deployment) -> Fact:
    given = it.option("dtype", "auto")
    if not given.values:
        return given
    asked = str(given.values[0])
    if asked != "auto":
        return known(_SAME.get(asked, asked), f"--dtype {asked}")
    if it.config is None:
        return unknown(NO_CONFIG)
    for config in (it.config, it.text_config()):
        if (said := config.get("dtype") or config.get("torch_dtype")) in ("bfloat16", "float16"):
            return known(said, f"config.json says {said}")
    return unknown("--dtype auto chooses it from the model's config.json, which says none of two bytes")


FACTS: Makers = {"convolution states of another dtype": _other_dtype}
