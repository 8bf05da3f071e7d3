"""Proof of vllm.pooling-chunk-race: chunks of a long prompt, on a GPU that is behind. Spared: prompts of one chunk, and
asynchronous scheduling. Token ids stand for all inputs, which `execute_model` prepares within one wait."""

from __future__ import annotations

from attnfix.patches.lab.vllm.input_prep import Case, InputPrep

from .wrap import input_event


class _Passed:
    """An event for which nobody waits."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class Proof(InputPrep):
    needs = "GPUModelRunner._pool: AsyncGPUPoolingModelRunnerOutput"
    absent = "each step of pooling waits for the GPU"
    bug = (
        Case(pooling=True),
        Case(pooling=True, tokens=(48, 40, 48, 1, 48, 48), ends=(False, False, True, False, False, True)),
    )
    spared = Case(pooling=True, chunked=False, ends=(True,) * 6), Case(pooling=True, ahead=True), Case(tokens=(48,))
    broken = {"nobody waits for the event": (input_event, lambda real: _Passed())}
