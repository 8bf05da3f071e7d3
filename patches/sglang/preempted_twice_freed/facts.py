"""What decides sglang.preempted-twice-freed alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF
from attnfix.compat.doctor.deployment import Makers

FACTS: Makers = {"priority scheduling": lambda it: it.option("enable-priority-scheduling", OFF)}
