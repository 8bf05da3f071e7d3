"""Proof of vllm.pp-pinned-inputs: a stage of three or four, on a GPU that is behind. Spared: two stages, and none."""

from __future__ import annotations

from attnfix.patches.lab.vllm.input_prep import Case, InputPrep
from attnfix.patches.vllm.shared.input_prep import input_event


class _Passed:
    """An event for which nobody waits."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class Proof(InputPrep):
    needs = "GPUModelRunner.synchronize_input_prep"
    absent = "steps share no pinned buffers whose copies an event can tell"
    bug = (Case(stages=3), Case(stages=4, tokens=(48, 1, 40, 48, 48, 3)))
    spared = Case(stages=2), Case(stages=2, tokens=(48, 1, 40, 48, 48, 3)), Case(tokens=(48,))
    around = {"Start with two pipeline stages at most": {"bug": (spared[0],)}}
    broken = {"nobody waits for the event": (input_event, lambda real: _Passed())}
