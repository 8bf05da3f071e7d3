"""Correction of vllm.pp-pinned-inputs."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm.shared.input_prep import never_waits, with_event


def has_stages(target: Any, instance: Any, vllm_config: Any) -> bool:
    """Of two stages, the step before the last one has ended when a step is prepared."""
    return vllm_config.parallel_config.pipeline_parallel_size > 2 and never_waits(instance, vllm_config)


def init(call: Any, instance: Any) -> None:
    with_event(call, instance)
