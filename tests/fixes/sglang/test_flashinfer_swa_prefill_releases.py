"""sglang.flashinfer-swa-prefill on real releases: models and modes that are spared, and prefill in a piecewise CUDA graph."""

from __future__ import annotations

import pytest

CODE = """
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.sglang.paged import SLIDING, WINDOW, Launch, Server, prefill
from attnfix.patches.sglang.flashinfer_swa_prefill.proof import Proof
it = Proof()
it.prepare()
import attnfix
from sglang.srt.layers.radix_attention import AttentionType

class Bidirectional(Server):
    def _model(self):
        super()._model()
        self.layers[SLIDING].attn_type = AttentionType.ENCODER_ONLY

class Narrower(Server):
    def _model(self):
        super()._model()
        self.layers[SLIDING].sliding_window_size = WINDOW - 1

def corrections():
    return next(row for row in attnfix.status() if row["fix"] == "sglang.flashinfer-swa-prefill")["counters"]["corrections"]

def seen(kind=Server, **launch):
    before, one = corrections(), it.server(Launch(**launch), 3, kind).run(prefill((0, 0), (20, 5)))
    return [one.error if one.error > 0.1 else 0, one.bits, corrections() - before]

found = {
    "a diffusion model": seen(modes=("is_dllm_model",)), "bidirectional": seen(Bidirectional), "narrower": seen(Narrower),
}
for name in ("is_in_piecewise_cuda_graph", "is_in_tc_piecewise_cuda_graph"):
    if hasattr(module := it.engine[it.modules[0]], name):
        setattr(module, name, lambda: True)
answer([found, seen()])
"""


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.15.post1", "0.5.21"])
def test_other_models_are_spared_and_piecewise_graphs_are_right(engine_fork, release):
    environment, switch = engine_fork("sglang", release), {"ATTNFIX_SGLANG_FLASHINFER_SWA_PREFILL": "1"}
    (stock, stock_graph), (fixed, fixed_graph) = (environment.evaluate(CODE, ATTNFIX=on, **switch) for on in ("0", "1"))
    assert stock == fixed
    if release == "0.5.21":  # which plans the window
        assert stock_graph == fixed_graph and not fixed_graph[0]
    else:
        assert stock_graph[0] and not fixed_graph[0] and fixed_graph[2] == 1
