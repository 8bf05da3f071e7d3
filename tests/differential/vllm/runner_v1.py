"""vLLM's former model runner, as a worker drives it. It serves every model up to 0.24, and later the ones that the engine
leaves to it, or all with VLLM_USE_V2_MODEL_RUNNER=0.

It is numpy and a few Triton kernels, which run in Triton's interpreter. Its n-gram drafter is compiled by numba; where that is
not installed, the same functions run as they are written.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import torch

from attnfix.patches.lab.vllm.kernels import found

from . import gpu
from .space import of_release

_RUNNER = "vllm.v1.worker.gpu_model_runner"


class State(NamedTuple):
    """Of one step. order: requests, row by row; metadata: of each layer; slots: of each layer, where the runner says them.
    replayed: whether its layers ran in a CUDA graph."""

    order: list[str]
    metadata: Any
    slots: Any
    replayed: bool


def serves(release: str, settings: dict[str, Any]) -> bool:
    """Where it is asked for, and in releases that have no other."""
    return bool(settings["former-model-runner"] or of_release(release).get("former-model-runner"))


def load() -> None:
    """Import it, before the stand-ins are bound wherever their names are."""
    import_module(_RUNNER)
    drafter = found("vllm.v1.spec_decode.ngram_proposer")
    if not hasattr(sys.modules["numba"], "__file__"):  # a stub, whose decorators leave functions as they are
        for name, plain in {"prange": range, "get_num_threads": lambda: 1, "set_num_threads": lambda count: None}.items():
            setattr(drafter, name, plain)


def make(config: Any) -> Any:
    return import_module(_RUNNER).GPUModelRunner(config, torch.device("cpu"))


def run(runner: Any, scheduled: Any) -> tuple[Any, State | None]:
    """(what the engine core gets, the state of the step, None where no model ran)."""
    given: list[tuple[Any, Any]] = []
    with _contexts(given):
        before = gpu.CUDAGraph.replays
        result = runner.execute_model(scheduled)
        replayed = gpu.CUDAGraph.replays > before
        if result is None:  # from 0.11.1
            result = runner.sample_tokens(None)
    state = State(list(runner.input_batch.req_ids), *given[0], replayed) if given else None
    return (result.get_output() if hasattr(result, "get_output") else result), state


@contextmanager
def _contexts(given: list[tuple[Any, Any]]) -> Any:
    """What the runner sets for the forward passes inside: metadata and slots."""
    module: Any = import_module(_RUNNER)
    former = module.set_forward_context

    def noted(metadata: Any, *args: Any, **kwargs: Any) -> Any:
        given.append((metadata, kwargs.get("slot_mapping")))
        return former(metadata, *args, **kwargs)

    module.set_forward_context = noted
    try:
        yield
    finally:
        module.set_forward_context = former


def drafts(runner: Any, scheduled: Any, name: str) -> list[int]:
    """The drafts that a request's rows of this step hold."""
    return list(scheduled.scheduled_spec_decode_tokens[name])
