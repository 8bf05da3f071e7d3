"""What decides vllm.tower-lora-encoder-cache alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _ec_connector(it: Deployment) -> Fact:
    """Whether outputs of the encoder are stored or sent under the names of images."""
    fact = it.option("ec-transfer-config.ec_connector", "none")
    return known(OFF, fact.why) if fact.values == ("none",) else Fact((ON,) if fact.values else (), fact.why)


FACTS: Makers = {
    "LoRA adapters of the encoder": lambda it: it.option("enable-tower-connector-lora", OFF),
    "EC connector": _ec_connector,
}
