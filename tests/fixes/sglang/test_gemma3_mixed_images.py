"""sglang.gemma3-mixed-images without an engine: what a mask is built of, and what is left behind."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.gemma3_mixed_images import wrap
from attnfix.patches.sglang.gemma3_mixed_images.fix import FIX
from tests.support import one_call


class Triton: ...


class Other: ...


IMAGE = SimpleNamespace(mm_items=["an image"])


def engine(self, forward_batch, input_ids, mask_dtype):
    """What it reads of each prompt."""
    if input_ids is None:
        raise ValueError("the engine's")
    if not isinstance(at_work(forward_batch), Triton):
        return None
    return [[*one.mm_items] for one in forward_batch.mm_inputs]


def at_work(batch):
    home = sys.modules[wrap.MODEL]
    return home.get_attn_backend() if hasattr(home, "get_attn_backend") else batch.attn_backend


@pytest.fixture(params=["of the batch", "of the context"])
def batch_of(request, monkeypatch):
    module = ModuleType(wrap.MODEL)
    module.TritonAttnBackend = Triton
    monkeypatch.setitem(sys.modules, wrap.MODEL, module)

    def make(images, backend=Triton):
        batch = SimpleNamespace(mm_inputs=images)
        if request.param == "of the batch":
            batch.attn_backend = backend()
        else:
            module.get_attn_backend = backend
        return batch

    return make


def run(batch, tokens=(), state=None):
    """(what the engine read, how many corrections were counted)"""
    state = state or FixState(FIX)
    read = one_call.run(FIX.targets[0], engine, state, None, batch, tokens, bool)
    return read, state.counters.corrections


def test_a_prompt_without_images_has_an_empty_list(batch_of):
    images = [None, IMAGE, None]
    batch = batch_of(images)
    assert run(batch) == ([[], ["an image"], []], 1)
    assert batch.mm_inputs is images and images == [None, IMAGE, None]


def test_prompts_that_all_have_one_are_left_alone(batch_of):
    assert run(batch_of([IMAGE, IMAGE])) == ([["an image"]] * 2, 0)


def test_so_are_backends_without_masks(batch_of):
    assert run(batch_of([None, IMAGE], Other)) == (None, 0)


def test_an_error_of_the_engine_leaves_the_batch_as_it_was(batch_of):
    images, state = [None, IMAGE], FixState(FIX)
    batch = batch_of(images)
    with pytest.raises(ValueError, match="the engine's"):
        run(batch, None, state)
    assert batch.mm_inputs is images and state.armed
