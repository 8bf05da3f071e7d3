"""sglang.eagle-swa-verify on real releases, beside its neighbours: n-gram trees, draft extend in a graph, DFlash, and all of a
request's steps, with a soft cap and without."""

from __future__ import annotations

import pytest

SWITCHES = ("EAGLE_SWA_VERIFY", "FLASHINFER_SWA_PREFILL", "FLASHINFER_SOFT_CAP")
CODE = """
import torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.proof import combine
from attnfix.patches.lab.sglang.paged import CHAIN, TREE, Launch, Server, decode, prefill, verify
from attnfix.patches.sglang.eagle_swa_verify.proof import LONG, Proof
it = Proof()
it.prepare()
import attnfix
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput
from sglang.srt.speculative.ngram_info import NgramVerifyInput

class Ngram(Server):
    def _drafts(self, *what):
        made = super()._drafts(*what)
        return NgramVerifyInput(
            custom_mask=made.custom_mask, positions=made.positions, draft_token_num=made.draft_token_num)

class DFlash(Server):
    def _drafts(self, step, before, positions):
        return DFlashVerifyInput(draft_token=None, positions=positions, draft_token_num=len(step.parents) + 1)

class DraftExtend(Server):
    def _batch(self, step, size):
        batch, tokens = super()._batch(step, size), step.new[0]
        batch.spec_info = EagleDraftExtendInput(
            num_correct_drafts=torch.full((size,), tokens - 1), num_accept_tokens=torch.full((size,), tokens),
            num_tokens_per_req=tokens)
        return batch

def seen(*steps, kind=Server, **launch):
    server = it.server(Launch(topk=2, **launch), 3, kind)
    one = combine(*(server.run(step) for step in steps))
    return [one.error if one.error > 0.1 else 0, one.bits]

ALL = (
    prefill((0, 25, 6), (17, 12, 1)), verify(LONG, TREE, graph=True), prefill((30, 3), (4, 2)), decode((30, 3, 8, 12)),
)
answer({
    "n-gram": seen(verify(LONG), verify(LONG, graph=True), kind=Ngram),
    "draft extend": seen(prefill(LONG, (4, 4, 4), mode="DRAFT_EXTEND_V2", graph=True), kind=DraftExtend),
    "DFlash": seen(verify(LONG, CHAIN), kind=DFlash),
    "all of a request": seen(*ALL), "with a soft cap": seen(*ALL, soft_cap=2.0),
})
"""


@pytest.mark.parametrize("release", ["0.5.14", "0.5.20", "0.5.23"])
def test_beside_its_neighbours(engine_fork, release):
    environment = engine_fork("sglang", release)
    on = {f"ATTNFIX_SGLANG_{name}": "1" for name in SWITCHES}
    alone_on = {**dict.fromkeys(on, "0"), f"ATTNFIX_SGLANG_{SWITCHES[0]}": "1"}
    stock, alone, fixed = (
        environment.evaluate(CODE, ATTNFIX=switch, **variables) for switch, variables in (("0", on), ("1", alone_on), ("1", on))
    )
    for name in ("n-gram", "draft extend"):
        assert stock[name][0] and alone[name] == fixed[name] and not fixed[name][0], name
    assert stock["DFlash"] == alone["DFlash"] == fixed["DFlash"]
    for name in ("all of a request", "with a soft cap"):
        assert stock[name][0] and alone[name][0] and not fixed[name][0], name
