"""sglang.draft-kv-indices on real releases: the last tokens of the context, and batches that always fitted."""

from __future__ import annotations

HEAD = """
import torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.sglang.draft_kv_indices.proof import _CONTEXT, _ROOM, Proof, Steps
proof = Proof()
proof.prepare()

def steps(topk, steps=5):
    return Steps(proof.engine, torch.Generator().manual_seed(3), topk, steps)

# The scheduler stops a request two tokens short of the context length; before its last draft, four tokens short are cached
at_the_limit = [_CONTEXT - 4] * _ROOM
"""
FITTING = """
import attnfix
made = steps(2)
seen = [made([_CONTEXT // 2 - 5] * n) for n in (1, 2, 4)]
width = made.backend.cuda_graph_kv_indices.shape[1]
row = next(row for row in attnfix.status() if row["fix"] == "sglang.draft-kv-indices")
found = dict(errors=[one.error for one in seen], bits=[one.bits for one in seen], width=width // _ROOM, row=row)
"""
LIMIT = """
import sglang.srt.layers.attention.trtllm_mha_backend as trtllm
from attnfix.patches.sglang.draft_kv_indices import wrap
found["ours"] = steps(4)(at_the_limit).error
wrap.room = lambda backend: backend.topk * _CONTEXT
found["upstreams"] = steps(4)(at_the_limit).error
heir = vars(trtllm.TRTLLMHAAttnMultiStepDraftBackend)["init_cuda_graph_state"]
found["heir"] = [type(heir).__name__, "super" in heir.__code__.co_names]
"""
RAISED = """
said = []
for topk in (1, 4):
    try:
        said.append(str(steps(topk)(at_the_limit).error))
    except AssertionError as error:
        said.append(str(error))
answer(said)
"""


def test_the_last_affected_release(engine_fork):
    """Batches that fit the engine's rows give the same bits. With upstream's width, the rows of a full batch overflow by the
    tokens that are drafted beyond the context; ours hold them. TRT-LLM MHA inherits the class and allocates for itself."""
    environment = engine_fork("sglang", "0.5.12.post1")
    stock = environment.evaluate(HEAD + FITTING + "answer(found)", ATTNFIX="0")
    fixed = environment.evaluate(HEAD + FITTING + LIMIT + "answer(found)")
    assert stock["bits"] == fixed["bits"] and stock["errors"] == fixed["errors"] == [0, 0, 0]
    assert (stock["width"], fixed["width"]) == (72, 2 * (72 + 5))
    assert (stock["row"]["state"], fixed["row"]["state"], fixed["row"]["counters"]["corrections"]) == ("off", "effective", 1)
    assert fixed["ours"] == 0 and fixed["upstreams"] > 0.1
    assert fixed["heir"] == ["function", False]


def test_at_the_context_length_the_newest_release_raises(engine_fork):
    """It compares the batch with the width before it writes, with one branch as with several: the scheduler ends with it."""
    for said in engine_fork("sglang", "0.5.23").evaluate(HEAD + RAISED):
        assert "used" in said and "capacity" in said
