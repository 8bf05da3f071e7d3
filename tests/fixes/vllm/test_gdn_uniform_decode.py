"""vllm.gdn-uniform-decode without an engine: which batches are told that they are no decode step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_uniform_decode.fix import FIX
from tests.support import one_call

K = 3
#: Computed, scheduled and known tokens of a request
FRESH, REST, AGAIN = (0, K + 1, K + 1), (8, K + 1, 12), (20, K + 1, 24)  # the last: after a preemption, its own tokens, too
PART = (0, K + 1, 100)
DECODE, ASYNC = (7, K + 1, 8), (11, K + 1, 9)  # asynchronous scheduling counts drafts as computed before it knows


def config(full=True):
    return SimpleNamespace(cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: full))


def runner(requests, hybrid=True, drafts=K):
    computed, _, known = (np.array(column, dtype=np.int32) for column in zip(*requests, (99, 99, 99)))  # and one that has left
    batch = SimpleNamespace(num_computed_tokens_cpu=computed, num_tokens_no_spec=known)
    return Runner(
        input_batch=batch, uniform_decode_query_len=1 + drafts, model_config=SimpleNamespace(is_hybrid=hybrid),
        compilation_config=config(),
    )  # fmt: skip


class Runner(SimpleNamespace):
    """The engine's: returns what it was told of the batch."""

    def decide(
        self, num_tokens, num_reqs, num_scheduled_tokens_np, max_num_scheduled_tokens, more=None, force_eager=False,
        force_uniform_decode=None,
    ):  # fmt: skip
        return force_uniform_decode


def decide(requests, positions=False, instance=None, **options):
    """(force_uniform_decode as the engine got it, corrections, whether the fix is armed)"""
    scheduled = np.array([tokens for _, tokens, _ in requests], dtype=np.int32)
    batch = {
        "num_tokens": int(scheduled.sum()), "num_reqs": len(requests), "num_scheduled_tokens_np": scheduled,
        "max_num_scheduled_tokens": int(scheduled.max()),
    }  # fmt: skip
    state = FixState(FIX)
    target = one_call.target_of(FIX, "_determine_batch_execution_and_padding")
    function = one_call.wrapper(target, Runner.decide, state).function
    instance, named = instance or runner(requests), {**batch, **options}
    found = function(instance, *batch.values(), **options) if positions else function(instance, **named)
    return found, state.counters.corrections, state.armed


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("requests", [[FRESH], [REST], [AGAIN], [PART], [FRESH, FRESH], [DECODE, FRESH], [DECODE, ASYNC, REST]])
def test_a_batch_with_a_prefill_is_no_decode_step(requests, positions):
    assert decide(requests, positions) == (False, 1, True)


@pytest.mark.parametrize("requests", [[DECODE], [ASYNC], [DECODE, ASYNC]])
def test_decodes_keep_their_graph(requests):
    assert decide(requests) == (None, 0, True)


@pytest.mark.parametrize("requests", [[(0, K + 2, K + 2)], [DECODE, (0, K, K)], [(0, 1, 1)]])
def test_other_shapes_are_the_engines_matter(requests):
    assert decide(requests) == (None, 0, True)


@pytest.mark.parametrize(
    "instance", [runner([FRESH], hybrid=False), runner([FRESH], drafts=0)], ids=["no recurrent state", "no drafts"]
)
def test_other_models_keep_their_graph(instance):
    assert decide([FRESH], instance=instance) == (None, 0, True)


def test_a_prompt_of_one_token_is_a_decode_where_nothing_is_drafted():
    assert decide([(0, 1, 1)], instance=runner([(0, 1, 1)], drafts=0)) == (None, 0, True)


def test_without_full_graphs_a_prefill_is_run_as_ever():
    """The mode may be lowered while the server starts; and a step may be without graphs."""
    instance = runner([FRESH])
    instance.compilation_config.cudagraph_mode = config(full=False).cudagraph_mode
    assert decide([FRESH], instance=instance) == (None, 0, True)
    assert decide([FRESH], force_eager=True) == (None, 0, True)


@pytest.mark.parametrize("forced", [True, False])
def test_capture_and_dummy_runs_say_it_themselves(forced):
    assert decide([FRESH], force_uniform_decode=forced) == (forced, 0, True)


def test_from_step_to_step_nothing_of_the_last_batch_is_left():
    """What is kept of a batch goes with its size and its arrays; contents change in place."""
    instance = runner([DECODE] * 3)
    batch = instance.input_batch
    steps = [[DECODE], [DECODE, DECODE], [DECODE, FRESH], [FRESH], [DECODE], [DECODE, REST, ASYNC], [DECODE, ASYNC, DECODE]]
    for replaced in ((), ("num_tokens_no_spec",), ("num_computed_tokens_cpu",)):
        for name in replaced:
            setattr(batch, name, getattr(batch, name).copy())
        for requests in (steps[-1], *steps):  # the first keeps the size that the last had
            for at, (computed, _, known) in enumerate(requests):
                batch.num_computed_tokens_cpu[at], batch.num_tokens_no_spec[at] = computed, known
            assert decide(requests, instance=instance) == decide(requests)
    batch.num_tokens_no_spec = batch.num_tokens_no_spec.copy()
    batch.num_tokens_no_spec[:3] = batch.num_computed_tokens_cpu[:3] + K + 1
    assert decide([FRESH] * 3, instance=instance) == (False, 1, True)
    batch.num_computed_tokens_cpu = batch.num_tokens_no_spec - 1
    assert decide([DECODE] * 3, instance=instance) == (None, 0, True)


def test_an_engine_without_these_arrays_is_told_nothing():
    """The correction fails before it has called the engine, which then decides alone."""
    instance = runner([FRESH])
    del instance.input_batch.num_tokens_no_spec
    assert decide([FRESH], instance=instance) == (None, 0, False)
