"""vllm.hybrid-stale-bits without an engine: which blocks are cleared, in which pools, and what of the pool they are."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.hybrid_stale_bits.fix import FIX
from attnfix.patches.vllm.shared import cleared_blocks
from tests.support import one_call

_PAGE, _BLOCKS = 64, 8


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    platform = SimpleNamespace(is_cpu=lambda: False)
    monkeypatch.setitem(sys.modules, cleared_blocks._PLATFORMS, SimpleNamespace(current_platform=platform))
    return platform


class Runner:
    """Two tensors of ones, each of which a layer of each group has, as [2, blocks, …] over pages or as states."""

    device, pin_memory = torch.device("cpu"), False

    def __init__(self, *kinds, page=_PAGE, keys_first=False, absent=()):
        self.memory = [torch.ones(_PAGE * _BLOCKS, dtype=torch.uint8) for _ in range(2)]
        layers, groups = {}, []
        for kind, dtype, size in kinds:
            spec = type(kind, (), dict(dtype=dtype, dtypes=(torch.bfloat16, dtype), block_size=size, page_size_bytes=page))()
            names = [f"{kind}.{at}" for at in range(2)] if kind not in absent else []
            groups.append(SimpleNamespace(kv_cache_spec=spec, layer_names=names))
            for name, memory in zip(names, self.memory):
                elements = memory.view(torch.bfloat16)
                halves = elements.view(2, _BLOCKS, -1) if keys_first else elements.view(_BLOCKS, 2, -1).transpose(0, 1)
                layers[name] = SimpleNamespace(kv_cache=[[memory, memory] if kind == "MambaSpec" else halves])
        self.kv_cache_config = SimpleNamespace(num_blocks=_BLOCKS, kv_cache_groups=groups)
        self.compilation_config = SimpleNamespace(static_forward_context=layers)

    def _update_states(self, scheduler_output):
        return "updated"

    def cleared(self):
        pages = torch.stack(self.memory).view(2, _BLOCKS, _PAGE)
        assert bool((pages == pages[:1, :, :1]).all())  # whole blocks, of both tensors
        return [block for block in range(_BLOCKS) if not pages[0, block, 0]]


STATES, KV, LATENTS = ("MambaSpec", torch.float32, 256), ("FullAttentionSpec", torch.bfloat16, 32), "MLAAttentionSpec"


def step(new=(), **cached):
    """new: (blocks of each group, computed tokens). cached: name -> (the same, whether it is resumed)."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(block_ids=blocks, num_computed_tokens=computed) for blocks, computed in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached), new_block_ids=[blocks for blocks, *_ in cached.values()],
            num_computed_tokens=[computed for _, computed, _ in cached.values()],
            resumed_from_preemption=[resumed for *_, resumed in cached.values()],
        ),
    )  # fmt: skip


BEGINS = step([(([1], [2, 3, 4]), 0)])


def run(runner, given, state=None):
    """The blocks that were cleared, and how many corrections were counted."""
    state = state or FixState(FIX)
    assert one_call.run(one_call.target_of(FIX, "_update_states"), Runner._update_states, state, runner, given) == "updated"
    return runner.cleared(), state.counters.corrections


@pytest.mark.parametrize(
    "given, blocks",
    [
        (BEGINS, [2, 3, 4]),
        (step([(([1], [2, 3, 4]), 32)]), [3, 4]),  # a cached prefix
        (step([(([1], [2, 3, 4]), 33)]), [4]),  # a block that is filled in part
        (step(a=(([], [7]), 64, False)), [7]),  # a decode
        (step(a=(([1], [2, 3, 4]), 32, True)), [3, 4]),  # resumed behind a cached prefix
        (step(a=(([1], []), 64, False)), []),
        (step(a=(None, 64, False)), []),
    ],
)
def test_blocks_that_hold_no_token_are_cleared(given, blocks):
    assert run(Runner(STATES, KV), given) == (blocks, int(bool(blocks)))


def test_who_is_resumed_as_later_releases_say_it():
    given = step(a=(([1], [2, 3, 4]), 32, True))
    cached = vars(given.scheduled_cached_reqs)
    cached["resumed_req_ids"] = {"a"} if cached.pop("resumed_from_preemption") else set()
    assert run(Runner(STATES, KV), given) == ([3, 4], 1)


def test_latents_and_fp8():
    assert run(Runner(STATES, (LATENTS, torch.bfloat16, 32)), BEGINS) == ([2, 3, 4], 1)
    assert run(Runner(("MambaSpec", torch.bfloat16, 256), (KV[0], torch.uint8, 32)), BEGINS) == ([2, 3, 4], 1)


@pytest.mark.parametrize(
    "kinds",
    [
        [KV],
        [KV, ("SlidingWindowSpec", torch.bfloat16, 32)],
        [("MambaSpec", torch.bfloat16, 256), KV],
        [STATES, ("CrossAttentionSpec", torch.bfloat16, 16)],
    ],
)
def test_other_pools_are_left(kinds):
    assert run(Runner(*kinds), BEGINS) == ([], 0)


def test_the_cpu_is_left(engine):
    engine.is_cpu = lambda: True
    assert run(Runner(STATES, KV), BEGINS) == ([], 0)


@pytest.mark.parametrize("memory", [dict(page=_PAGE * 3), dict(keys_first=True)])
def test_a_tensor_that_is_not_made_of_whole_blocks_is_left(memory):
    assert run(Runner(STATES, KV, **memory), BEGINS) == ([], 0)


@pytest.mark.parametrize("absent", [STATES[0], KV[0]])
def test_ranks_of_a_pipeline_that_have_one_kind_of_layers_are_left(absent):
    """Without states, FlashAttention keeps all keys ahead of the values: row b of the memory is not block b."""
    state = FixState(FIX)
    assert run(Runner(STATES, KV, keys_first=absent == STATES[0], absent=[absent]), BEGINS, state) == ([], 0)
    assert not state.left_out


def test_a_block_that_kernels_see_as_several():
    runner = Runner(STATES, KV)
    for layer in runner.compilation_config.static_forward_context.values():
        if isinstance(layer.kv_cache[0], torch.Tensor):
            layer.kv_cache[0] = layer.kv_cache[0].transpose(0, 1).reshape(_BLOCKS * 2, 2, -1).transpose(0, 1)
    assert run(runner, BEGINS) == ([2, 3, 4], 1)
