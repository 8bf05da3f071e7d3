"""Real releases under the uniform-replay-stride fixes: what a replay costs, and why spec v1 is left alone."""

from __future__ import annotations

import pytest

PROOF = """
import importlib, torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.sglang import draft_extend_graph as graphs
proof = importlib.import_module("attnfix.patches.sglang.uniform_replay_stride_{backend}.proof").Proof()
proof.prepare()
draw = torch.Generator().manual_seed(7)
"""

# One call stock and one fixed, both after the first; then a hundred steps with other requests each
REPLAYS = """
from torch.utils._python_dispatch import TorchDispatchMode

class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func))
        return func(*args, **(kwargs or {}))

step = proof.step(proof.engine, "DRAFT_EXTEND_V2", draw)
requests = graphs.uneven(draw, 3)
first = [observation.error for observation in step(requests)]
fixed = type(step.backend).init_forward_metadata_replay_cuda_graph
size, runs, addresses = requests.size, [], set()
metadata = step.graphs[size][2][0]
batch = step.buffers.batch(size, requests)
arguments = dict(
    bs=size, req_pool_indices=step.buffers.req_pool_indices, seq_lens=step.buffers.seq_lens, seq_lens_sum=0,
    encoder_lens=None, forward_mode=batch.forward_mode, spec_info=batch.spec_info, seq_lens_cpu=None,
)
for replay in (fixed.__wrapped__, fixed):
    names = []
    with Operators():
        replay(step.backend, **arguments)
    runs.append(names)
for _ in range(100):
    requests = graphs.uneven(draw, 3)
    step.buffers.fill(requests)
    arguments["spec_info"] = step.buffers.batch(size, requests).spec_info
    fixed(step.backend, **arguments)
    tensors = [value for value in vars(metadata).values() if isinstance(value, torch.Tensor)]
    addresses.add(tuple(tensor.data_ptr() for tensor in tensors))
answer(dict(first=first, same=runs[0] == runs[1], operators=len(runs[0]), addresses=len(addresses)))
"""

V1 = """
step = proof.step(proof.engine, "DRAFT_EXTEND", draw)
of = lambda *accepted: step(graphs.Requests((20, 9, 31), accepted, packed=True))[0].error
answer([of(1, 4, 2), of(4, 4, 4)])
"""


@pytest.mark.parametrize("backend", ["mla", "triton"])
def test_a_corrected_replay_runs_what_the_stock_one_runs(engine_fork, backend):
    alone = {"ATTNFIX_SGLANG_TRITON_DRAFT_DOUBLE_COUNT": "0"}  # which stands on the same target, and launches
    seen = engine_fork("sglang", "0.5.9").evaluate(PROOF.format(backend=backend) + REPLAYS, **alone)
    assert max(seen["first"]) < 0.01
    assert seen["same"] and seen["operators"] and seen["addresses"] == 1


@pytest.mark.parametrize(
    "backend, release, uneven_right, full_right",
    [
        ("triton", "0.5.9", True, True),
        ("triton", "0.5.10", False, True),
        ("mla", "0.5.9", False, False),
        ("mla", "0.5.10", False, True),
    ],
)
def test_no_uniform_stride_is_right_for_the_packed_tokens_of_spec_v1(engine_fork, backend, release, uneven_right, full_right):
    """Upstream made the stride uniform for v1, too (0.5.10). Triton was right before. On MLA only full batches become right:
    in a graph the tokens always divide evenly by the requests, so `forward_extend` never pads the query."""
    uneven, full = engine_fork("sglang", release).evaluate(PROOF.format(backend=backend) + V1)
    assert (uneven < 0.01) is uneven_right and (uneven > 0.05) is not uneven_right
    assert (full < 0.01) is full_right and (full > 0.05) is not full_right
