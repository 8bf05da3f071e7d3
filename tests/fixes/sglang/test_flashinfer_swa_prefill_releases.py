"""sglang.flashinfer-swa-prefill on real releases: the engine's own updaters and forward in the modes that a server can have."""

from __future__ import annotations

import pytest

SWITCH = {"ATTNFIX_SGLANG_FLASHINFER_SWA_PREFILL": "1"}
HEAD = """
import torch
from attnfix.prove import side
side._ease_engine("sglang")
from attnfix.patches.lab.sglang.flashinfer_server import WINDOW, Server
from attnfix.patches.sglang.flashinfer_swa_prefill.proof import WITHIN, Proof
it = Proof()
it.prepare()
module = it.engine["sglang.srt.layers.attention.flashinfer_backend"]
kinds = it.engine["sglang.srt.layers.radix_attention"].AttentionType
import attnfix

def corrections():
    return next(row for row in attnfix.status() if row["fix"] == "sglang.flashinfer-swa-prefill")["counters"]["corrections"]

def seen(make):
    before, one = corrections(), make()
    return [round(one.error, 3), one.bits, corrections() - before]

def server(**modes):
    return Server(it.engine, torch.Generator().manual_seed(3), **modes)

LONG, SHORT = ([0, 0], [20, 5]), ([30, 3], [4, 2])
found = {}
"""
MODES = """
found["long"] = seen(lambda: server().prefill(*LONG))
found["short behind a prefix"] = seen(lambda: server().prefill(*SHORT))
found["one token behind a prefix"] = seen(lambda: server().prefill([30, 3], [1, 1], mode="MIXED"))
found["within"] = seen(lambda: server().prefill(*WITHIN))
found["decode"] = seen(lambda: server().decode([30, 3, WINDOW, 12]))
for mode in ("is_multimodal", "enable_deterministic", "use_paged"):
    found[mode] = seen(lambda: server(**{mode: True}).prefill(*LONG))
found["diffusion"] = seen(lambda: server(is_dllm_model=True).prefill(*LONG))

def of_layers(change):
    class Other(Server):
        def _backend(self, modes):
            change(self.layers)
            return super()._backend(modes)
    return lambda: Other(it.engine, torch.Generator().manual_seed(3)).prefill(*LONG)

def bidirectional(layers):
    layers[0].attn_type = kinds.ENCODER_ONLY

def narrower(layers):
    layers[0].sliding_window_size = WINDOW - 1

found["bidirectional"], found["narrower"] = seen(of_layers(bidirectional)), seen(of_layers(narrower))

for name in ("is_in_piecewise_cuda_graph", "is_in_tc_piecewise_cuda_graph"):
    if hasattr(module, name):
        setattr(module, name, lambda: True)
found["piecewise graph"] = seen(lambda: server().prefill(*LONG))
answer(found)
"""

POOLS = """
from attnfix.patches.lab.sglang import window_pool
it.may_lack += window_pool.MAY_LACK
modules = {name: loaded for name in window_pool.MODULES if (loaded := it._imported(name))}

class TwoPools(Server):
    def _backend(self, modes):
        cached, new = modes.pop("batch")
        two = window_pool.Pool(modules, self.draw, cached, new, WINDOW, self.req_to_token.shape[1])
        for layer, (k, v), layer_id in zip(self.layers, self.tokens, (window_pool.SLIDING, window_pool.FULL)):
            layer.layer_id = layer_id
            for b, n in enumerate(cached):
                self.req_to_token[b], k[b, :n], v[b, :n] = two.req_to_token[b], two.keys[b], two.values[b]
        self.pool = two.kv
        made = super()._backend(modes | {"use_sliding_window_kv_pool": True, "_swa_kv_pool": two.kv})
        if hasattr(module, "SWATokenToKVPoolAllocator"):
            allocator = object.__new__(module.SWATokenToKVPoolAllocator)
            allocator.translate_loc_from_full_to_swa = two.kv.translate_loc_from_full_to_swa
            made.indices_updater_prefill.token_to_kv_pool_allocator = allocator
        return made

def of_two_pools(cached, new):
    server = TwoPools(it.engine, torch.Generator().manual_seed(3), batch=(cached, new))
    return seen(lambda: server.prefill(cached, new, fill=False))

found["long"], found["short behind a prefix"] = of_two_pools(*LONG), of_two_pools(*SHORT)
found["long behind a prefix"] = of_two_pools([30, 3], [20, 12])
answer(found)
"""


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.15.post1", "0.5.20", "0.5.21"])
def test_every_mode(engine_fork, release):
    environment = engine_fork("sglang", release)
    stock, fixed = (environment.evaluate(HEAD + MODES, ATTNFIX=switch, **SWITCH) for switch in ("0", "1"))
    plans_window, plans_prefix = release in ("0.5.20", "0.5.21"), release == "0.5.21"
    wrong = {"long"}
    if not plans_prefix:
        wrong |= {"short behind a prefix", "one token behind a prefix"}
    if not plans_window:
        wrong |= {"is_multimodal", "enable_deterministic", "use_paged", "piecewise graph"}
    for name in set(stock) - {"diffusion", "bidirectional", "narrower"}:
        error, bits, corrections = fixed[name]
        assert error < 0.001, name
        if name in wrong:
            assert stock[name][0] > 0.1 and corrections == 1, name
        else:
            assert stock[name] == [error, bits, 0] and not corrections, name
    for name in ("diffusion", "bidirectional", "narrower"):
        assert stock[name] == fixed[name], name


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.20"])
def test_window_layers_with_a_pool_of_their_own(engine_fork, release):
    """Models other than Gemma's: the new tokens lie in that pool before it is read."""
    environment = engine_fork("sglang", release)
    stock, fixed = (environment.evaluate(HEAD + POOLS, ATTNFIX=switch, **SWITCH) for switch in ("0", "1"))
    for name, (error, _, corrections) in fixed.items():
        assert stock[name][0] > 0.1 and error < 0.001 and corrections == 1, name
