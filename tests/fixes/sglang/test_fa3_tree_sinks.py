"""sglang.fa3-tree-sinks without an engine: which launch gets no sinks, what stays as it was, and a backend's own kernel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_tree_sinks.fix import FIX
from tests.support import one_call

SINKS = torch.tensor([1.0])
LAUNCHES = []


def flash_attn_with_kvcache(q, *, page_table, return_softmax_lse=False, **launch):
    LAUNCHES.append((page_table, launch.get("sinks")))
    return (q, q) if return_softmax_lse else q


def two_passes(kernel, backend, q, **given):
    kernel(q, page_table=backend.prefix, return_softmax_lse=True, **given)
    return kernel(q, page_table=backend.forward_metadata_spec_decode_expand.page_table, return_softmax_lse=True, **given)[0]


class Backend:
    use_mla = False
    topk = 2

    def __init__(self, **fields):
        self.prefix, self.drafts = torch.zeros(1, 1), torch.zeros(1, 2)
        self.forward_metadata_spec_decode_expand = SimpleNamespace(page_table=self.drafts)
        vars(self).update(fields)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None):
        given = {} if sinks is None else {"sinks": sinks}
        if layer.in_one_pass:
            return flash_attn_with_kvcache(q, page_table=self.prefix, **given)
        return two_passes(flash_attn_with_kvcache, self, q, **given)

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None):
        given = {} if sinks is None else {"sinks": sinks}
        if layer.in_one_pass:  # local attention, cross attention
            return flash_attn_with_kvcache(q, page_table=self.prefix, **given)
        return two_passes(flash_attn_with_kvcache, self, q, **given)


def batch(verifies=True, drafts=True):
    return SimpleNamespace(forward_mode=SimpleNamespace(is_target_verify=lambda: verifies), spec_info=drafts or None)


def run(name, backend, sinks=SINKS, in_one_pass=False, **of_batch):
    """Sinks of each launch, and how many corrections were counted."""
    LAUNCHES.clear()
    state, function = FixState(FIX), getattr(type(backend), name)
    layer, given = SimpleNamespace(in_one_pass=in_one_pass), {} if sinks is None else {"sinks": sinks}
    one_call.run(one_call.target_of(FIX, name), function, state, backend, SINKS, None, None, layer, batch(**of_batch), **given)
    return [sinks for _, sinks in LAUNCHES], state.counters.corrections


BOTH = pytest.mark.parametrize("name", ("forward_extend", "forward_decode"))


@BOTH
def test_the_pass_over_the_cache_gets_no_sinks(name):
    backend = Backend()
    assert run(name, backend) == ([None, SINKS], 1)
    assert [table for table, _ in LAUNCHES] == [backend.prefix, backend.drafts]


@BOTH
def test_a_layer_in_one_pass_keeps_its_sinks(name):
    assert run(name, Backend(), in_one_pass=True) == ([SINKS], 0)


@BOTH
@pytest.mark.parametrize("fields", ({"topk": 1}, {"topk": 0}, {"use_mla": True}))
def test_chains_and_latents_are_left_alone(name, fields):
    assert run(name, Backend(**fields)) == ([SINKS, SINKS], 0)


@BOTH
def test_without_sinks_nothing_is_changed(name):
    assert run(name, Backend(), sinks=None) == ([None, None], 0)


def test_other_batches_are_left_alone():
    assert run("forward_extend", Backend(), verifies=False) == ([SINKS, SINKS], 0)
    assert run("forward_decode", Backend(), drafts=False) == ([SINKS, SINKS], 0)


def test_an_idle_batch_has_no_second_pass():
    backend = Backend(forward_metadata_spec_decode_expand=None)
    assert run("forward_decode", backend, in_one_pass=True) == ([SINKS], 0)


def of_the_backend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None):
    return two_passes(self.flash_attn_with_kvcache, self, q, sinks=sinks)


def test_a_kernel_that_the_backend_holds_is_met_too(monkeypatch):
    """0.5.10 and 0.5.10.post1 have no such name in the module."""
    alone = {"two_passes": two_passes, "__builtins__": __builtins__}
    function = type(of_the_backend)(of_the_backend.__code__, alone, "forward_extend", of_the_backend.__defaults__)
    kernel = lambda *args, **launch: flash_attn_with_kvcache(*args, **launch)  # noqa: E731
    kind = type("Held", (Backend,), {"forward_extend": function})
    backend = kind(flash_attn_with_kvcache=kernel)
    assert run("forward_extend", backend) == ([None, SINKS], 1)
    assert backend.flash_attn_with_kvcache is kernel
