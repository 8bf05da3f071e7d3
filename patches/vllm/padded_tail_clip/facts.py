"""What decides vllm.padded-tail-clip alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import hidden_states_drafter


def _ends_with_a_block(it: Deployment) -> Fact:
    """Whether the last token of a prompt is cut off from what follows where its block ends.

    Up to 0.26 no chunk ends there with a drafter that reads hidden states: the last state that such a server keeps is one block
    before.
    """
    if it.release is not None and it.since("0.27.0"):
        return known(ON, f"vLLM {it.release} ends each chunk with its block")
    reads = hidden_states_drafter(it)
    if reads.values == (ON,) and it.release is not None:
        return known(OFF, reads.why)
    return Fact((ON,) if reads.values == (OFF,) else (ON, OFF), reads.why)


FACTS: Makers = {"last tokens that end with a block": _ends_with_a_block}
