"""vllm.mla-context-order in real releases, where its proof does not go: beside its neighbour, other merges, sparse MLA."""

from __future__ import annotations

import math

HEAD = """
from types import SimpleNamespace
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm import mla_prefill
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

prefill = MlaPrefill()
prefill.prepare()
UNORDERED = Batch((0, 70, 0, 1, 20, 0), (2, 3, 4, 5, 6, 7), decodes=1)

def run(backend):
    prefill.use()
    with mla_prefill.uninitialised(1.0):
        return observe(*prefill.outputs(5, UNORDERED, backend)).error

def row(fix):
    import attnfix
    found = next(row for row in attnfix.status() if row["fix"] == fix)
    return found["state"], found["counters"]["corrections"]
"""


TRITON = """
import sys
entry = sys.modules[prefill.mla.merge_attn_states.__module__]
entry.current_platform = SimpleNamespace(is_cuda=lambda: False)
triton = run("fa")
"""


def test_beside_its_neighbour_and_with_tritons_merge(engine_fork):
    """With TRT-LLM ragged, chunks that end early are the neighbour's matter. Triton's merge, which runs on ROCm and XPU, makes
    NaN of two empty chunks up to 0.25.1: no request without context may see that."""
    environment = engine_fork("vllm", "0.25.1")
    rows = "row('vllm.mla-context-order'), row('vllm.empty-context-chunks')"
    code = HEAD + f"ragged, orders, rows = run('trtllm_ragged'), {rows}\n"
    ragged, orders, rows, triton = environment.evaluate(code + TRITON + "answer([ragged, orders, rows, triton])")
    assert ragged < 0.01 and triton < 0.01
    assert orders == ["effective", 2] and rows[0] == "effective"
    assert not math.isfinite(environment.evaluate(HEAD + TRITON + "answer(triton)", ATTNFIX="0"))


def test_the_builder_of_sparse_mla(engine_fork):
    """It has imported the function that dense MLA shares with it. It is loaded before a stand-in for the platform is put in."""
    code = (
        "from vllm.model_executor.layers.attention import sparse_mla_attention as sparse\n"
        + HEAD
        + (
            "import torch\n"
            "builder = object.__new__(sparse.SparseMLACommonMetadataBuilder)\n"
            "builder.__dict__.update(dcp_world_size=1, dcp_local_block_size=1, dcp_virtual_block_size=1, device='cpu',\n"
            "    chunked_prefill_workspace=torch.zeros(64, 8), chunked_prefill_workspace_size=64,\n"
            "    kv_cache_spec=SimpleNamespace(block_size=16))\n"
            "def length(context, new):\n"
            "    starts, new = mla_prefill.cumulative(new), torch.tensor(new)\n"
            "    common = SimpleNamespace(seq_lens_cpu_upper_bound=torch.tensor(context) + new, query_start_loc_cpu=starts)\n"
            "    with mla_prefill.unpinned():\n"
            "        made = builder._build_chunked_context_fields(common, 0, len(new), new)\n"
            "    return made.prefill_tokens_with_context\n"
            "answer([length([0, 40], [2, 3]), length([40, 0], [2, 3])])"
        )
    )
    assert engine_fork("vllm", "0.27.1").evaluate(code) == [None, 2]  # stock: [2, 2]
