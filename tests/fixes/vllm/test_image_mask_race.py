"""vllm.image-mask-race without an engine: which masks get memory of their own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.image_mask_race import wrap
from attnfix.patches.vllm.image_mask_race.fix import FIX
from tests.support import one_call


def gather(self, scheduler_output, shift_computed_tokens=0):
    mask = self.is_mm_embed.cpu
    mask[:] = shift_computed_tokens == 1
    if scheduler_output is None:
        raise AssertionError("the engine's")
    return [], mask


def runner(pinned=True, ahead=False, method=None, padded=True):
    drafts = method and SimpleNamespace(use_eagle=lambda: method == "mtp", disable_padded_drafter_batch=not padded)
    memory = torch.zeros(8, dtype=torch.bool)
    return SimpleNamespace(
        pin_memory=pinned, use_async_scheduling=ahead, speculative_config=drafts,
        is_mm_embed=SimpleNamespace(cpu=memory, np=memory.numpy()),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def ordinary(monkeypatch):
    monkeypatch.setattr(wrap, "fresh", torch.empty_like)


def masks(of, step="step"):
    """(whether the first of two masks outlives the second, corrections)"""
    state, target = FixState(FIX), one_call.target_of(FIX, "_gather_mm_embeddings")
    (_, first), (_, second) = (one_call.run(target, gather, state, of, step, ahead) for ahead in (1, 0))
    assert not second.any() and (torch.from_numpy(of.is_mm_embed.np) == of.is_mm_embed.cpu).all()
    assert of.is_mm_embed.np.ctypes.data == of.is_mm_embed.cpu.data_ptr()
    return bool(first.all()), state.counters.corrections


@pytest.mark.parametrize("of", [{"ahead": True}, {"method": "mtp"}, {"ahead": True, "method": "ngram"}])
def test_masks_that_are_under_way_stay(of):
    assert masks(runner(**of)) == (True, 2)


@pytest.mark.parametrize(
    "of", [{}, {"method": "ngram"}, {"method": "mtp", "padded": False}, {"pinned": False, "ahead": True, "method": "mtp"}]
)
def test_where_copies_are_waited_for_all_stays(of):
    assert masks(runner(**of)) == (False, 0)


def test_what_the_engine_raises_passes():
    with pytest.raises(AssertionError, match="the engine's"):
        masks(runner(ahead=True), None)
