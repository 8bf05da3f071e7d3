"""Prefill in a breakable CUDA graph, sglang's default from 0.5.15 on: a replay has other lengths than the capture.

Real: the engine's break around attention, what it keeps of a capture and calls at each replay, and all of attention behind it.
Emulated: the segments between two breaks, which hold no attention, and FlashInfer's kernels.
"""

from __future__ import annotations

import pytest

CODE = """
from importlib import import_module
from types import SimpleNamespace
import torch
from attnfix.prove import side
side._ease_engine("sglang")
import attnfix
from attnfix.patches.lab.proof import observe
from attnfix.patches.sglang.flashinfer_fp8_prefix import proof

registered = torch.library.Library.impl

def impl(library, name, function, key="", **more):  # attention is an operator for CUDA devices alone
    return registered(library, name, function, "CPU" if key == "CUDA" else key, **more)

torch.library.Library.impl = impl
it = proof.Proof()
it.prepare()
runner = "sglang.srt.model_executor."
utils = runner + "runner_backend_utils."
attention = import_module("sglang.srt.layers.radix_attention")
breaks = import_module(utils + "breakable_cuda_graph.breakable_cuda_graph")
pieces = import_module(utils + "tc_piecewise_cuda_graph")
contexts = import_module(runner + "forward_context")
breaks._weak_ref_if_tensor = lambda value: value  # a kernel of sgl_kernel's

ROOM = 64

class Graphed(proof.Prefill):
    # Captured with requests that have nothing cached, and replayed with whatever comes

    def capture(self):
        heads = proof._HEADS, proof._KV_HEADS, proof._KV_HEADS
        self.static = [torch.zeros(ROOM, count, proof._DIM).half() for count in heads]
        self.out = torch.zeros(ROOM, proof._HEADS * proof._DIM).half()
        graph = SimpleNamespace(_break_fns=[])
        segment = lambda: None
        capture = SimpleNamespace(
            cuda_graph=graph, _end_current_segment=segment, _begin_new_segment=segment, _barrier_fn=None
        )
        batch = self._batch([16] * 4)
        self.backend.init_forward_metadata(batch)
        token = breaks._current_capture_var.set(capture)
        q, k, v = self.static
        self._within(batch, ROOM, lambda: attention.breakable_unified_attention_with_output(
            q.flatten(1), k, v, self.out, True, 0))
        breaks._current_capture_var.reset(token)
        self.graph = graph
        self.pool.k_buffer[0].zero_(), self.pool.v_buffer[0].zero_()

    def _within(self, batch, tokens, run):
        batch.num_token_non_padded_cpu = batch.global_num_token_non_padded_cpu = tokens
        batch.mha_return_lse = False
        context = contexts.ForwardContext(attn_backend=self.backend)
        with contexts.forward_context(context), pieces.set_tc_piecewise_forward_context(batch, [self.layer], None, [], []):
            run()

    def step(self, new):
        batch, tokens = self._batch(new), sum(new)
        sizes = (1, 1.5, 8.0)
        for static, size in zip(self.static, sizes):
            static.zero_()
            static[:tokens] = torch.randn(tokens, *static.shape[1:], generator=self.draw).half() * size
        q, k, v = (static[:tokens].clone() for static in self.static)
        reference = self._reference(q, k, v, new)
        self.backend.init_forward_metadata(batch)
        self._within(batch, tokens, lambda: [one() for one in self.graph._break_fns])
        self.cached = [n + more for n, more in zip(self.cached, new)]
        return observe(self.out[:tokens].view(q.shape), reference)

def corrections():
    rows = [row for row in attnfix.status() if row["fix"] == "sglang.flashinfer-fp8-prefix"]
    return sum(row["counters"]["corrections"] for row in rows)

graphed = Graphed(it.engine, torch.Generator().manual_seed(5), torch.float8_e4m3fn, proof._SCALES)
graphed.capture()
found = []
for new in ([5, 3, 9, 4], [2, 7, 1, 6], [4, 4, 4, 4]):
    before, error = corrections(), graphed.step(new).error
    found.append([error, corrections() - before])
answer(found)
"""


@pytest.mark.parametrize("release", ["0.5.15", "0.5.17"])
def test_fp8_prefix_is_decided_at_each_replay(engine_fork, release):
    """The first replay has nothing cached, as the capture had; the others read what the ones before stored."""
    environment = engine_fork("sglang", release)
    stock = environment.evaluate(CODE, ATTNFIX="0")
    (first, counted), *later = environment.evaluate(CODE)
    assert first == stock[0][0] < 0.01 and counted == 0
    assert all(error < 0.05 < wrong and count == 1 for (error, count), (wrong, _) in zip(later, stock[1:], strict=True))
