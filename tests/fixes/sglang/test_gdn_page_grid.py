"""sglang.gdn-page-grid without an engine: which of the kernel's states are taken, and whom the correction leaves alone."""

from __future__ import annotations

import random
from types import FunctionType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.gdn_page_grid.fix import FIX
from attnfix.patches.sglang.gdn_page_grid.wrap import CHUNK
from tests.support import one_call

(TARGET,) = FIX.targets
#: How the engine's module asks for the chunk of the radix cache, by release
ASKS = {
    "0.5.13": lambda page: {"get_global_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=page)},
    "0.5.16": lambda page: {"get_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=page)},
    "0.5.18": lambda page: {"mamba_cache_chunk_size": lambda: page},
}


def backend(name, **dispatcher):
    home = f"sglang.srt.layers.attention.linear.{name[:3].lower()}_backend"
    instance = type(name, (), {"__module__": home})()
    instance.device, instance.kernel_dispatcher = "cpu", SimpleNamespace(**dispatcher)
    return instance


def batch(new, cached, page, branches=()):
    """Requests that compute so many tokens; branches: {request: offset among them, that is tracked}."""
    ends = [branches[at] + 1 if at in branches else tokens for at, tokens in enumerate(new)]
    mask = torch.tensor([tokens >= page for tokens in new])
    return SimpleNamespace(
        extend_seq_lens=torch.tensor(new, dtype=torch.int32), extend_prefix_lens=torch.tensor(cached, dtype=torch.int32),
        mamba_track_mask=mask, mamba_track_seqlens=torch.where(mask, torch.tensor(cached) + torch.tensor(ends), -1),
        mamba_track_indices=torch.arange(len(new)) + 100,
    )  # fmt: skip


def engines(self, mamba_cache_indices, forward_batch):
    """The engine's count, in pages."""
    wanted = (forward_batch.mamba_track_seqlens - forward_batch.extend_prefix_lens)[forward_batch.mamba_track_mask]
    inner = wanted % PAGE != 0  # noqa: F821
    slots = forward_batch.mamba_track_indices[forward_batch.mamba_track_mask][inner]
    return wanted[inner] // PAGE, slots, "of last", "to"  # noqa: F821


def run(given, page, release="0.5.18", kind="GDNAttnBackend", asks=True, **dispatcher):
    """(what the engine gets to track, how often it was corrected)"""
    instance = backend(kind, **dispatcher)
    function = FunctionType(engines.__code__, {"PAGE": page, **(ASKS[release](page) if asks else {})}, "engines")
    state = FixState(FIX)
    slots = torch.arange(len(given.mamba_track_mask))
    return one_call.run(TARGET, function, state, instance, slots, given), state.counters.corrections


@pytest.mark.parametrize("kind", ["GDNAttnBackend", "KDAAttnBackend"])
@pytest.mark.parametrize("seed", range(20))
def test_every_state_is_that_of_its_position(seed, kind):
    draw, page = random.Random(seed), 128 if seed % 2 else 256
    new = [draw.choice([1, 64, 100, 128, 130, 200, 256, 257, 330, 512, 700]) for _ in range(draw.randint(1, 7))]
    cached = [page * draw.randrange(4) for _ in new]
    branches = {at: page for at, tokens in enumerate(new) if tokens > page and draw.random() < 0.3}
    kept = [(at, first) for at, tokens in enumerate(new) for first in range(0, tokens, CHUNK)]  # what the kernel keeps
    ends = [(at, branches.get(at, tokens // page * page)) for at, tokens in enumerate(new)]
    wanted = [one for one, tokens in zip(ends, new) if tokens >= page and (one[0] in branches or tokens % page)]
    given = batch(new, cached, page, branches)
    (source, slots, *last), corrections = run(given, page, draw.choice([*ASKS]), kind)
    assert [kept[at] for at in source.tolist()] == wanted and slots.tolist() == [100 + at for at, _ in wanted]
    assert source.dtype == torch.int64 and last == ["of last", "to"] and corrections == bool(wanted)


@pytest.mark.parametrize(
    "page, more",
    [(128, {"kind": "LightningAttentionBackend"}), (128, {"kind": "AscendGDNAttnBackend"}),
     (128, {"kind": "Mamba2AttnBackend"}), (128, {"extend_uses_state_checkpoints": True}),
     (64, {}), (96, {}), (128, {"asks": False})],
)  # fmt: skip
def test_others_are_left_alone(page, more):
    given = batch([200, 330], [0, 0], page)
    (source, *_), corrections = run(given, page, **more)
    assert source.tolist() == [200 // page, 330 // page] and not corrections


def test_a_backend_that_takes_other_rows_is_left_alone():
    """A newer engine may look up states of its own."""
    given = batch([200, 330], [0, 0], 128)
    state, taken = FixState(FIX), torch.tensor([7])
    function = FunctionType((lambda self, mamba_cache_indices, forward_batch: (TAKEN,)).__code__,  # noqa: F821
                            {"TAKEN": taken, **ASKS["0.5.18"](128)})  # fmt: skip
    assert one_call.run(TARGET, function, state, backend("GDNAttnBackend"), torch.arange(2), given) == (taken,)
    assert not state.counters.corrections
