"""What decides vllm.dynamic-ntk-base alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_LENGTH, _LIMIT = "max_position_embeddings", "max-model-len"


def _beyond(it: Deployment) -> Fact:
    """Whether requests may be longer than the model was trained for: by default, `factor` times as long."""
    if it.config is None:
        return unknown(NO_CONFIG)
    trained, asked = it.text_config().get(_LENGTH), it.number(_LIMIT, 0)
    if not asked.values or not isinstance(trained, int):
        return asked if not asked.values else unknown(f"config.json has no {_LENGTH}")
    longest = int(asked.values[0])  # -1: what memory holds
    return known(OFF if 0 < longest <= trained else ON, f"{asked.why}, {_LENGTH} {trained}")


FACTS: Makers = {"requests beyond the trained length": _beyond}
