"""vllm.image-split without an engine: where the step of a request ends whose images are the tokens 10-29 and 40-59."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.image_split.fix import FIX
from attnfix.patches.vllm.image_split.wrap import PATIENCE
from tests.support import one_call

SCHEDULE = one_call.target_of(FIX, "_try_schedule_encoder_inputs")


def image(first, name):
    return SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=first, length=20))


def asked(second="b"):
    return SimpleNamespace(mm_features=(image(10, "a"), image(40, second)), num_prompt_tokens=80)


def scheduler(*running, both_ways=True, whole=True, most=64, threshold=0, cached=()):
    return SimpleNamespace(
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(is_mm_prefix_lm=both_ways)),
        scheduler_config=SimpleNamespace(disable_chunked_mm_input=whole, long_prefill_token_threshold=threshold),
        encoder_cache_manager=SimpleNamespace(cached=dict.fromkeys(cached)),
        max_num_scheduled_tokens=most,
        running=list(running),
    )


def engines(self, request, num_computed_tokens, num_new_tokens, encoder_compute_budget):
    return num_new_tokens


def tokens(of, computed, new, request=None, state=None):
    """How many tokens the engine's function is asked for, and the corrections."""
    state = state or FixState(FIX)
    return one_call.run(SCHEDULE, engines, state, of, request or asked(), computed, new, 99), state.counters.corrections


OTHER = object()


@pytest.mark.parametrize("computed, new, asked_for", [
    (10, 15, 0),  # it begins with the image
    (12, 10, 0),  # a cached prefix ends in the image
    (10, 20, 20), (12, 18, 18), (10, 25, 25),  # the image ends in the step
    (0, 15, 15), (10, 35, 35),  # the engine itself ends it before the image
    (30, 5, 5), (60, 20, 20), (80, 1, 1), (10, 0, 0),
])  # fmt: skip
def test_a_step_that_would_end_in_an_image(computed, new, asked_for):
    assert tokens(scheduler(OTHER), computed, new) == (asked_for, int(asked_for != new))


def test_who_is_left_alone():
    first = asked()
    for of, request in (
        (scheduler(OTHER, both_ways=False), None),
        (scheduler(), None),  # nobody is ahead
        (scheduler(first, OTHER), first),
        (scheduler(OTHER, most=19), None),  # no step holds the image
        (scheduler(OTHER, threshold=19), None),
    ):
        assert tokens(of, 10, 15, request) == (15, 0)
    assert tokens(scheduler(OTHER, threshold=20), 10, 15) == (0, 1)


def test_an_image_that_the_engine_does_not_end_before():
    assert tokens(scheduler(whole=False), 0, 15) == (10, 1)  # with nobody ahead, too: it goes on
    assert tokens(scheduler(cached="a"), 0, 15) == (10, 1)
    twice = asked(second="a")
    assert tokens(scheduler(), 10, 35, twice) == (30, 1)
    assert tokens(scheduler(cached="a", most=19), 0, 15) == (15, 0)


def test_a_request_does_not_wait_for_ever():
    request, state = asked(), FixState(FIX)
    waits = [tokens(scheduler(OTHER), 10, 15, request, state)[0] for _ in range(PATIENCE + 2)]
    assert waits == [0] * PATIENCE + [15] * 2 and state.counters.corrections == PATIENCE
