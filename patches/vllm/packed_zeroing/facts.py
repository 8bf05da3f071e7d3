"""What decides vllm.packed-zeroing alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

_TOGETHER = "kv-transfer-config.kv_connector_extra_config.enable_cross_layers_blocks"


def _together(it: Deployment) -> Fact:
    """Whether a KV connector wants the layers of a group in one block."""
    fact = it.option(_TOGETHER, "False")
    return known(ON if str(fact.values[0]).lower() in ("true", ON) else OFF, fact.why) if fact.values else fact


FACTS: Makers = {"layers of a connector in one block": _together}
