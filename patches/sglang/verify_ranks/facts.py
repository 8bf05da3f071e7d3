"""What decides sglang.verify-ranks alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers, maker
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.doctor.sglang import FACTS as COMMON


def _for_themselves(it: Deployment) -> Fact:
    """Whether each rank keeps the decision of its own kernel."""
    gpu, algorithm = maker(it), COMMON["speculative algorithm"](it)
    if gpu.values == (AMD,):
        return known(ON, gpu.why)
    if not algorithm.values:
        return algorithm
    first = "0.5.14" if algorithm.values == ("NGRAM",) else "0.5.11"
    if it.since(first):
        return known(OFF, f"decisions on sampled requests are shared from {first} on") if gpu.values else gpu
    return known(ON, f"decisions on sampled requests are shared from {first} on alone")


def _one_machine(it: Deployment) -> Fact:
    """Whether ranks of one machine verify the same requests."""
    ranks, machines = it.number("tp-size", 1), it.number("nnodes", 1)
    groups = it.number("dp-size", 1) if it.given("enable-dp-attention") else known(1, "")
    if not (ranks.values and machines.values and groups.values):
        return next(fact for fact in (ranks, machines, groups) if not fact.values)
    if machines.values != (1,):
        return known(OFF, f"{machines.why} {machines.values[0]}")
    share = int(ranks.values[0]) // int(groups.values[0])
    return known(ON if share > 1 else OFF, f"{ranks.why or 'no --tp-size'}: {share} on a group of requests")


FACTS: Makers = {"ranks that verify for themselves": _for_themselves, "several ranks on one machine": _one_machine}
