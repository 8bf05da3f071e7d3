"""vllm.padded-v-merge through the engine's own merge."""

from __future__ import annotations

NO_MEMORY = """
import torch
from attnfix.patches.vllm.padded_v_merge import wrap
from attnfix.patches.vllm.padded_v_merge.proof import Proof
import attnfix

proof = Proof()
proof.prepare()
packed, asked = wrap.packed, []

def full(part):
    asked.append(part)
    raise torch.OutOfMemoryError("CUDA out of memory")

wrap.packed = full
try:
    proof.scenario(1)
    raised = None
except torch.OutOfMemoryError as error:
    raised = str(error)
wrap.packed = packed
error = proof.scenario(1).error
(state,) = [row["state"] for row in attnfix.status() if row["fix"] == "vllm.padded-v-merge"]
answer({"asked": len(asked), "raised": raised, "then": error, "state": state})
"""


def test_a_call_without_memory_for_its_copy_is_no_wrong_answer_and_the_next_is_corrected(engine_fork):
    told = engine_fork("vllm", "0.25.1").evaluate(NO_MEMORY)
    assert told["asked"] == 1 and told["raised"] == "CUDA out of memory"
    assert told["then"] < 0.01 and told["state"] == "effective"
