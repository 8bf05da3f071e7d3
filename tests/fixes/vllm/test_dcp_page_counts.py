"""vllm.dcp-page-counts in real releases: every interleave, and metadata that several builders build of."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.lab.proof import replaced
from attnfix.patches.vllm.dcp_page_counts import proof, wrap
from attnfix.patches.vllm.dcp_page_counts.proof import Batch, Layout

proven = proof.Proof()
proven.prepare()
MIXED, LONG = proof._MIXED, proof._LONG

def error(layout, batch=MIXED):
    return proof.run(7, batch, layout).error

def plans():
    return {kind.__name__: [part.tolist() for part in parts] for kind, parts in proof._planned.items()}

def state():
    import attnfix
    return next(row["state"] for row in attnfix.status() if row["fix"] == "vllm.dcp-page-counts")
"""


@pytest.mark.parametrize("release", ["0.12.0", "0.14.0", "0.24.0", "0.29.0"])
def test_tokens_lie_on_ranks_as_the_option_says(engine_fork, release):
    """`--cp-kv-cache-interleave-size` of 1, 2 and a page; put back: the builder's own name for it, which stays 1."""
    code = HEAD + (
        "right = [error(Layout(2, interleave)) for interleave in (1, 2, proof._PAGE)] + [error(Layout(3, 2))]\n"
        "with replaced(wrap, 'interleave', lambda builder: builder.dcp_kv_cache_interleave_size):\n"
        "    ignored = [error(Layout(2, interleave)) for interleave in (1, 2, proof._PAGE)]\n"
        "answer([right, ignored, state()])"
    )
    right, ignored, state = engine_fork("vllm", release).evaluate(code)
    assert max(right) < 1e-6 and state == "effective"
    assert ignored[0] < 1e-6 and min(ignored[1:]) > 0.1


TWICE = """
import torch

def numbers(common):
    return [x.tolist() for x in (common.seq_lens_cpu, common.num_computed_tokens_cpu)]

def built_by(second):
    "(plan of the second builder, plan it makes alone, what others read of the metadata before and after)"
    worker, (first, other) = proof.rank_of(1, 2, 1)
    with worker:
        alone, common = worker.batch(*LONG, pages=proof._PAGES), worker.batch(*LONG, pages=proof._PAGES)
        held = common.seq_lens_cpu  # another builder's metadata may hold it, or the runner's buffer be it
        before, held_before = numbers(worker.batch(*LONG, pages=proof._PAGES)), held.tolist()
        other.build(0, alone)
        expected = plans()
        first.build(0, common)
        second(other, common)
        return plans(), expected, [before, held_before], [numbers(common), held.tolist()]
"""
SECOND = {
    "a second group": "lambda builder, common: builder.build(0, common)",
    "a drafter": "lambda builder, common: builder.build_for_drafting(common, 0)",
    "a group with a block table of its own": "lambda builder, common: builder.build(0, dataclasses.replace(common))",
}


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1", "0.29.0"])
def test_metadata_is_built_twice(engine_fork, release):
    """Everyone plans as if alone, and the lengths stay what they were; put back: the engine's subtraction in place."""
    cases = ", ".join(f"{name!r}: built_by({second})" for name, second in SECOND.items())
    code = HEAD + TWICE + (
        f"import dataclasses\ndone = {{{cases}}}\n"
        "errors = [error(Layout(2, twice=True), LONG)]\n"
        "with replaced(wrap, 'with_own_lens', lambda common: common):\n"
        "    errors.append(error(Layout(2, twice=True), LONG))\n"
        "answer([done, errors])"
    )  # fmt: skip
    done, (right, in_place) = engine_fork("vllm", release).evaluate(code)
    for name, (planned, expected, before, after) in done.items():
        assert planned == expected, name
        assert before == after, name
    assert right < 1e-6 and in_place > 0.1


def test_no_page_count_is_negative(engine_fork):
    """A fresh prompt's context is empty, however often its metadata is built."""
    code = HEAD + (
        "fresh = Batch((0,), (150,))\n"
        "answer([error(Layout(2, twice=True), fresh), plans()])"
    )  # fmt: skip
    right, planned = engine_fork("vllm", "0.19.1").evaluate(code)
    assert right < 1e-6 and planned["_Held"][0] == [0, 0]


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1"])
def test_one_rank_gets_the_metadata_that_was_made(engine_fork, release):
    code = HEAD + (
        "worker, (builder, _) = proof.rank_of(0, 1, 1)\n"
        "seen = []\n"
        "split = proven.engine[proof._BACKEND].split_decodes_and_prefills\n"
        "look = lambda common, **more: (seen.append(common), split(common, **more))[1]\n"
        "with worker, replaced(proven.engine[proof._BACKEND], 'split_decodes_and_prefills', look):\n"
        "    common = worker.batch(*MIXED, pages=proof._PAGES)\n"
        "    builder.build(0, common)\n"
        "answer(seen[0] is common)"
    )
    assert engine_fork("vllm", release).evaluate(code)


def test_the_wait_for_lengths_is_one_that_the_engine_allows(engine_fork):
    """VLLM_GPU_SYNC_CHECK=error: lengths that only the GPU knows are copied where the engine lets its own code wait for it."""
    code = HEAD + (
        "import torch\n"
        "from vllm.utils import gpu_sync_debug\n"
        "gpu_sync_debug._SYNC_CHECK_MODE = 'error'  # read at import, of a platform that has a GPU\n"
        "worker, (builder, _) = proof.rank_of(1, 2, 1)\n"
        "class OnGpu(torch.Tensor):\n"
        "    def to(self, *args, **kwargs):\n"
        "        if not gpu_sync_debug._allow_depth.get():\n"
        "            raise RuntimeError(gpu_sync_debug.SYNC_ERROR_MESSAGE)\n"
        "        return self.as_subclass(torch.Tensor).clone()\n"
        "with worker:\n"
        "    builder.build(0, worker.batch(*MIXED, pages=proof._PAGES))\n"
        "    expected = plans()\n"
        "    common = worker.batch(*MIXED, pages=proof._PAGES, _seq_lens_cpu=None)\n"
        "    common.seq_lens = common.seq_lens.as_subclass(OnGpu)\n"
        "    builder.build(0, common)\n"
        "answer([plans() == expected, state()])"
    )  # fmt: skip
    assert engine_fork("vllm", "0.29.0").evaluate(code) == [True, "effective"]
