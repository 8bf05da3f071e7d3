"""What decides sglang.qwen35-mrope alone."""

from __future__ import annotations

from attnfix.compat.doctor.deployment import Makers

FACTS: Makers = {}
