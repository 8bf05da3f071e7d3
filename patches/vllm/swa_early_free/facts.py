"""Facts of a deployment that decide vllm.swa-early-free alone. Without any, this file goes."""

from __future__ import annotations

from attnfix.compat.doctor.deployment import Makers

FACTS: Makers = {}  # FILL IN: name -> function of the deployment
