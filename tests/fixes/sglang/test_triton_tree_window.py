"""sglang.triton-tree-window without an engine: what a mask lets each draft see, which launch gets one, what stays as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.triton_tree_window import wrap
from attnfix.patches.sglang.triton_tree_window.fix import FIX
from tests.support import one_call

DRAFTS, MOST, WINDOW = 4, 5, 2
#: A root with two children, one of which has a child
SEEN = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]).bool()
CACHED = [5, 1]  # tokens that the window lists
BEFORE = [3, 0]  # tokens before these
LAUNCHES = []


def kernel(*args, **launch):
    LAUNCHES.append((args, launch))


class Backend:
    sliding_window_size = MOST
    topk = 2

    def __init__(self, **fields):
        masks = [torch.cat([torch.ones(DRAFTS, n + m), SEEN], 1).flatten() for n, m in zip(CACHED, BEFORE)]
        rows = [DRAFTS * (n + m + DRAFTS) for n, m in zip(CACHED, BEFORE)]
        self.forward_metadata = SimpleNamespace(
            custom_mask=torch.cat(masks).to(torch.uint8), mask_indptr=torch.tensor([0, *rows]).cumsum(0),
            window_kv_indptr=torch.tensor([0, *CACHED], dtype=torch.int32).cumsum(0, dtype=torch.int32),
            window_kv_offsets=torch.tensor([*BEFORE, 0]), qo_indptr=torch.arange(3) * DRAFTS,
        )  # fmt: skip
        self.extend_attention_fwd = kernel
        vars(self).update(fields)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None):
        data = self.forward_metadata
        self.extend_attention_fwd(
            q, k, v, "o", "keys", "values", data.qo_indptr, data.window_kv_indptr, "slots", data.custom_mask, True,
            data.mask_indptr, DRAFTS, 1.0, sliding_window_size=layer.sliding_window_size, sinks=sinks,
            window_kv_offsets=data.window_kv_offsets,
        )  # fmt: skip
        return "o"


def run(backend, window=WINDOW, verifies=True, topk=None):
    """The launch, and how many corrections were counted."""
    LAUNCHES.clear()
    state, layer = FixState(FIX), SimpleNamespace(sliding_window_size=window)
    spec_info = SimpleNamespace() if topk is None else SimpleNamespace(topk=topk)
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_target_verify=lambda: verifies), spec_info=spec_info)
    function = type(backend).forward_extend
    one_call.run(one_call.target_of(FIX, "forward_extend"), function, state, backend, "q", "k", "v", layer, batch)
    (launch,) = LAUNCHES
    return launch, state.counters.corrections


def seen_by_kernel(args, launch):
    """[requests][draft] -> what the kernel attends to: cached tokens by -1, -2, … from the last, drafts by number."""
    indptr, offsets, drafts = args[7], launch["window_kv_offsets"], args[12]
    found = []
    for request in range(len(args[6]) - 1):
        cached, own = int(indptr[request + 1] - indptr[request]), []
        for row in range(drafts):
            start = int(args[11][request]) + row * int(cached + drafts + offsets[request]) + int(offsets[request])
            keys = range(-cached, drafts)
            masked = dict(zip(keys, args[9].flatten()[start : start + cached + drafts].tolist()))
            if launch.get("skip_prefix_custom_mask", True):
                masked |= dict.fromkeys(range(-cached, 0), True)
            own.append({key for key in keys if masked[key] and row <= key + launch["sliding_window_size"]})
        found.append(own)
    return found


def test_each_draft_sees_its_window_by_its_depth():
    backend = Backend()
    launch, corrections = run(backend)
    first, second = [{-2, -1, 0}, {-1, 0, 1}, {-1, 0, 2}, {0, 1, 3}], [{-1, 0}, {-1, 0, 1}, {-1, 0, 2}, {0, 1, 3}]
    assert corrections == 1 and seen_by_kernel(*launch) == [first, second]
    args, _ = launch
    assert backend.extend_attention_fwd is kernel and args[:9] == ("q", "k", "v", "o", "keys", "values", *args[6:8], "slots")


def test_what_the_engine_does_loses_the_oldest():
    launch, _ = run(Backend(), verifies=False)
    assert seen_by_kernel(*launch)[0] == [{-2, -1, 0}, {-1, 0, 1}, {0, 2}, {1, 3}]


def test_a_window_may_end_among_the_drafts():
    mask = wrap.window_mask(SEEN[None], 1, MOST)[0]
    assert [set(row.nonzero().flatten().tolist()) for row in mask] == [{4, 5}, {5, 6}, {5, 7}, {6, 8}]


@pytest.mark.parametrize("options", ({"window": -1}, {"window": None}, {"window": 0}, {"verifies": False}, {"topk": 1}))
def test_other_batches_and_layers_are_left_alone(options):
    backend = Backend()
    (args, launch), corrections = run(backend, **options)
    assert corrections == 0 and args[9] is backend.forward_metadata.custom_mask and "skip_prefix_custom_mask" not in launch


def test_chains_and_batches_without_a_mask_are_left_alone():
    assert run(Backend(topk=1))[1] == 0
    backend = Backend()
    backend.forward_metadata.custom_mask = None
    assert run(backend)[1] == 0


def test_a_backend_without_topk_knows_it_of_its_drafts():
    assert run(Backend(topk=None), topk=2)[1] == 1
    assert run(Backend(topk=None), topk=1)[1] == 0


def test_a_mask_that_is_too_short_is_not_read_past_its_end():
    """Up to 0.5.16 a graph's has no room for drafts behind the context length: the kernel reads past it, torch would raise."""
    backend = Backend()
    backend.forward_metadata.custom_mask = backend.forward_metadata.custom_mask[:-1]
    run(backend)
