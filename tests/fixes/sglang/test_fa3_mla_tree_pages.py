"""sglang.fa3-mla-tree-pages without an engine: which launch is shown slots, what a view of them is, what stays as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.fa3_mla_tree_pages.fix import FIX
from attnfix.patches.sglang.fa3_mla_tree_pages.wrap import slots
from tests.support import one_call

LAUNCHES = []


def flash_attn_with_kvcache(q, *, k_cache, v_cache, page_table, return_softmax_lse=False, **launch):
    LAUNCHES.append((k_cache, v_cache))
    return (q, q) if return_softmax_lse else q


class Backend:
    use_mla, topk, page_size, fa_impl_ver = True, 2, 4, 3

    def __init__(self, **fields):
        vars(self).update(fields)
        self.prefix = torch.zeros(1, 1)
        self.latents = torch.arange(2.0 * 8 * 6).view(8, 2, 6)[:, :1]  # a layer's, of two that lie side by side
        rope, nope = self.latents[..., 4:], self.latents[..., :4]
        self.caches = tuple(part.unflatten(0, (-1, self.page_size)) for part in (rope, nope))
        vars(self).setdefault("forward_metadata_spec_decode_expand", SimpleNamespace(page_table=torch.zeros(1, 2)))

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        k_cache, v_cache = self.caches
        launch = {"k_cache": k_cache, "v_cache": v_cache}
        if layer.in_one_pass:
            return flash_attn_with_kvcache(q, page_table=self.prefix, **launch)
        flash_attn_with_kvcache(q, page_table=self.prefix, return_softmax_lse=True, **launch)
        drafts = self.forward_metadata_spec_decode_expand.page_table
        return flash_attn_with_kvcache(q, page_table=drafts, return_softmax_lse=True, **launch)[0]


def run(backend, in_one_pass=False, verifies=True):
    """Caches of each launch, and how many corrections were counted."""
    LAUNCHES.clear()
    state, batch = FixState(FIX), SimpleNamespace(forward_mode=SimpleNamespace(is_target_verify=lambda: verifies))
    function, layer = type(backend).forward_extend, SimpleNamespace(in_one_pass=in_one_pass)
    one_call.run(one_call.target_of(FIX, "forward_extend"), function, state, backend, torch.zeros(1), None, None, layer, batch)
    return list(LAUNCHES), state.counters.corrections


def same(launch, caches):
    return all(given is cache for given, cache in zip(launch, caches))


def test_the_pass_over_the_drafts_is_shown_slots():
    backend = Backend()
    (first, second), corrections = run(backend)
    assert corrections == 1 and same(first, backend.caches)
    for given, part in zip(second, (slice(4, 6), slice(0, 4))):
        assert torch.equal(given.squeeze(1), backend.latents[..., part])
        assert given.shape[:2] == (8, 1) and given.stride()[:2] == (12, 12)  # both are a slot's
        assert given.untyped_storage().data_ptr() == backend.latents.untyped_storage().data_ptr()


def test_slots_of_one_page_and_of_contiguous_latents():
    cache = torch.arange(24.0).view(1, 4, 1, 6)
    assert torch.equal(slots(cache), cache.view(4, 1, 1, 6)) and slots(cache).is_contiguous()


@pytest.mark.parametrize(
    "fields",
    (
        {"use_mla": False},
        {"page_size": 1},
        {"topk": 1},
        {"topk": 0},
        {"fa_impl_ver": 4},
    ),
)
def test_what_has_no_such_table_is_left_alone(fields):
    backend = Backend(**fields)
    launches, corrections = run(backend)
    assert corrections == 0 and all(same(launch, backend.caches) for launch in launches)


def test_other_batches_and_layers_in_one_pass_are_left_alone():
    for options in ({"verifies": False}, {"in_one_pass": True}):
        backend = Backend()
        launches, corrections = run(backend, **options)
        assert corrections == 0 and all(same(launch, backend.caches) for launch in launches)


def test_an_idle_batch_has_no_second_pass():
    backend = Backend(forward_metadata_spec_decode_expand=None)
    assert run(backend, in_one_pass=True)[1] == 0
