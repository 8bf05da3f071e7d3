"""Proof of vllm.swa-early-free: FILL IN: what is run, and what is spared."""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.proof import Cases, Observation

from . import wrap


class Proof(Cases):
    modules = ("vllm.v1.core.kv_cache_manager",)
    kernel = "none"
    bug = ("FILL IN",)
    spared = ("FILL IN",)
    broken = {"the correction does nothing": (wrap.right, lambda real, result: result)}

    def run(self, case: Any, seed: int) -> Observation:
        """FILL IN: run the engine's code on one case, and compare it with float64."""
        raise NotImplementedError("patches/vllm/swa_early_free/proof.py runs nothing yet")
