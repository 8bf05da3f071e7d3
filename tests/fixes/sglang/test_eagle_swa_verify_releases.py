"""sglang.eagle-swa-verify on real releases, beside its neighbours: n-gram trees, draft extend in a graph, window layers with a
pool of their own, DFlash, and models with a soft cap whose prompts are longer than the window."""

from __future__ import annotations

import pytest

SWITCHES = ("EAGLE_SWA_VERIFY", "FLASHINFER_SWA_PREFILL", "FLASHINFER_SOFT_CAP")
HEAD = """
import torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.proof import combine, observe
from attnfix.patches.lab.sglang import flashinfer_server, window_pool
from attnfix.patches.lab.sglang.engine import on_cpu
from attnfix.patches.lab.sglang.flashinfer_server import ROOM, Server
from attnfix.patches.sglang.eagle_swa_verify.proof import CHAIN, LONG, TREE, Proof
it = Proof()
it.prepare()
ngram = it._imported("sglang.srt.speculative.ngram_info")
dflash = it._imported("sglang.srt.speculative.dflash_info")
eagle = it.engine[flashinfer_server.VERIFY]
import attnfix

def corrections():
    return next(row for row in attnfix.status() if row["fix"] == "sglang.eagle-swa-verify")["counters"]["corrections"]

def seen(make):
    before, one = corrections(), make()
    return [round(one.error, 3), one.bits, corrections() - before]

def server(kind=Server, **given):
    return kind(it.engine, torch.Generator().manual_seed(3), **given)

class Ngram(Server):
    def _verify_input(self, mask, positions, draft, topk):
        return ngram.NgramVerifyInput(custom_mask=mask, positions=positions, draft_token_num=draft)

class DFlash(Server):
    def _verify_input(self, mask, positions, draft, topk):
        return dflash.DFlashVerifyInput(draft_token=None, positions=positions, draft_token_num=draft)

class DraftExtend(Server):
    def extend(self, cached, draft=4):
        count, totals = len(cached), [n + draft for n in cached]
        with on_cpu():
            self.backend.draft_extend_cuda_graph_metadata = {}
            self.backend.init_cuda_graph_state(ROOM, ROOM * draft)
        spec = eagle.EagleDraftExtendInput(
            num_correct_drafts=torch.full((count,), draft - 1), num_accept_tokens=torch.full((count,), draft),
            num_tokens_per_req=draft)
        batch = self._batch(cached, [draft] * count, "DRAFT_EXTEND_V2", True)
        batch.spec_info = spec
        with on_cpu():
            for in_capture in (True, False):
                self.backend.init_forward_metadata_out_graph(batch, in_capture=in_capture)
        found = []
        for layer_id, layer in enumerate(self.layers):
            q = self._queries(count * draft)
            k, v = (torch.cat([x[b, n : n + draft] for b, n in enumerate(cached)]) for x in self.tokens[layer_id])
            out = self.backend.forward_extend(q.flatten(1), k, v, layer, batch).view(q.shape)
            wanted = [self._reference(q[b * draft + i][None], layer_id, b, n + i)
                      for b, n in enumerate(cached) for i in range(draft)]
            found.append(observe(out, torch.cat(wanted)))
        return combine(*found)

class TwoPools(Server):
    def _backend(self, modes):
        modules = {name: loaded for name in window_pool.MODULES if (loaded := it._imported(name))}
        two = window_pool.Pool(modules, self.draw, LONG, [len(TREE) + 1] * len(LONG), 8, self.req_to_token.shape[1])
        for layer, (k, v), layer_id in zip(self.layers, self.tokens, (window_pool.SLIDING, window_pool.FULL)):
            layer.layer_id = layer_id
            for b, n in enumerate(LONG):
                self.req_to_token[b], k[b, :n], v[b, :n] = two.req_to_token[b], two.keys[b], two.values[b]
        self.pool = two.kv
        return super()._backend(modes | {"use_sliding_window_kv_pool": True, "_swa_kv_pool": two.kv})

it.may_lack += window_pool.MAY_LACK
found = {
    "n-gram": seen(lambda: server(Ngram).verify(LONG, TREE, 0)),
    "n-gram in a graph": seen(lambda: server(Ngram).verify(LONG, TREE, 0, size=ROOM)),
    "draft extend": seen(lambda: server(DraftExtend).extend(LONG)),
    "DFlash": seen(lambda: server(DFlash).verify(LONG, CHAIN, 1)),
    "two pools": seen(lambda: server(TwoPools).verify(LONG, TREE, 2, fill=False)),
}

def served(**given):
    one = server(**given)
    return combine(one.prefill([0, 25, 6], [17, 12, 1]), one.verify(LONG, TREE, 2, size=ROOM), one.verify(LONG, CHAIN[:3], 1),
                   one.prefill([30, 3], [4, 2]), one.decode([30, 3, 8, 12]))

found["all of a request"], found["with a soft cap"] = seen(served), seen(lambda: served(soft_cap=2.0))
answer(found)
"""


@pytest.mark.parametrize("release", ["0.5.14", "0.5.20", "0.5.23"])
def test_beside_its_neighbours(engine_fork, release):
    environment = engine_fork("sglang", release)
    on = {f"ATTNFIX_SGLANG_{name}": "1" for name in SWITCHES}
    stock, alone, fixed = (
        environment.evaluate(HEAD, ATTNFIX=switch, **variables)
        for switch, variables in (("0", on), ("1", {**dict.fromkeys(on, "0"), f"ATTNFIX_SGLANG_{SWITCHES[0]}": "1"}), ("1", on))
    )
    for name in set(stock) - {"DFlash", "all of a request", "with a soft cap"}:
        for side in (alone, fixed):
            assert stock[name][0] > 0.1 and side[name][0] < 0.001 and side[name][2], name
        assert alone[name] == fixed[name], name
    assert stock["DFlash"] == alone["DFlash"] == fixed["DFlash"]
    for name in ("all of a request", "with a soft cap"):
        assert stock[name][0] > 0.1 and alone[name][0] > 0.1 and fixed[name][0] < 0.001, name
