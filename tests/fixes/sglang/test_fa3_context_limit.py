"""sglang.fa3-context-limit on real releases: the tables that a backend allocates, made by its own constructor."""

from __future__ import annotations

import pytest

#: Columns of a row of slots, in tokens; shapes of the tables of a backend's CUDA graphs that list slots, in pages
CODE = """
from attnfix.prove.side import _ease_engine
_ease_engine("sglang")
from attnfix.patches.lab.sglang import construction

FA3 = "--attention-backend", "fa3", "--page-size", "{size}", *{flags}
served = construction.serve(*FA3, draft=False)

def tables(backend):
    held = [each for name, each in sorted(vars(backend).items()) if isinstance(each, dict)]
    return [list(each[name].shape) for each in held for name in each if "page_table" in str(name)]

backend = served.backend("flashattention_backend:FlashAttentionBackend")
backend.init_cuda_graph_state(2, 8)
answer([served.req_to_token_pool.req_to_token.shape[1], tables(backend)])
"""
DRAFTS = "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-num-draft-tokens"
ON = {"ATTNFIX_SGLANG_FA3_CONTEXT_LIMIT": "1"}
CONTEXT = 128


def found(environment, size, flags, **variables):
    return environment.evaluate(CODE.format(size=size, flags=flags), **variables)


@pytest.mark.parametrize("release, size", [("0.5.1", 1), ("0.5.9", 16), ("0.5.13", 1), ("0.5.23", 16)])
def test_all_tables_are_as_wide_as_the_rows_they_are_filled_from(engine_fork, release, size):
    environment, flags = engine_fork("sglang", release), (*DRAFTS, "4", "--speculative-eagle-topk", "1")
    row, stock = found(environment, size, flags, ATTNFIX="0")
    _, patched = found(environment, size, flags, **ON)
    assert row > CONTEXT and {columns for _, columns in stock} == {CONTEXT // size}
    assert {columns for _, columns in patched} == {-(-row // size)} and len(patched) == len(stock) >= 4


@pytest.mark.parametrize("release", ["0.5.1", "0.5.23"])
def test_without_drafts_all_tables_are_the_same(engine_fork, release):
    environment = engine_fork("sglang", release)
    assert found(environment, 1, (), ATTNFIX="0") == found(environment, 1, (), **ON)
