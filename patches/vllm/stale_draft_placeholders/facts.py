"""What decides vllm.stale-draft-placeholders alone."""

from __future__ import annotations

from attnfix.compat.doctor.deployment import Makers

FACTS: Makers = {"tensor parallel size": lambda it: it.number("tensor-parallel-size", 1)}
