"""Proof of vllm.both-empty-merge-triton, with the engine's own Triton kernel; see `patches/vllm/both_empty_proof.py`."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm import both_empty_proof, mla_prefill

MODULES = MAY_LACK = both_empty_proof.MODULES
KERNEL = "interpreted"
scenario, control, sabotages = both_empty_proof.scenario, both_empty_proof.control, both_empty_proof.fixup_sabotages


def prepare(modules: dict[str, Any]) -> None:
    mla_prefill.prepare_flash(modules)
    mla_prefill.merge_on(cuda=False)
