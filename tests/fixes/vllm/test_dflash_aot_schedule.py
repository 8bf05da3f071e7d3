"""vllm.dflash-aot-schedule without an engine: which of a drafter's builders leave the schedule to the launch."""

from __future__ import annotations

from types import SimpleNamespace

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dflash_aot_schedule.fix import FIX
from tests.support import one_call

SET_ATTN = one_call.target_of(FIX, "set_attn")
WINDOW, FULL, NONE = (SimpleNamespace(sliding_window=512), SimpleNamespace(sliding_window=None), SimpleNamespace())


def several(*specs):
    return SimpleNamespace(kv_cache_specs=dict(enumerate(specs)))


def builder(spec, aot=True):
    return SimpleNamespace(kv_cache_spec=spec, aot_schedule=aot)


def set_attn(*groups):
    """Corrections for a drafter whose groups have these builders."""

    def made(self, model_state, kv_cache_config, block_tables):
        self.attn_groups = [[SimpleNamespace(metadata_builders=list(builders))] for builders in groups] + [[]]

    state = FixState(FIX)
    state.fired = True
    assert one_call.run(SET_ATTN, made, state, SimpleNamespace(), "state", "config", "tables") is None
    return state.counters.corrections


def test_a_window_switches_the_schedule_off_in_every_microbatch():
    both, other = (builder(WINDOW), builder(WINDOW)), builder(FULL)
    assert set_attn(both, [other]) == 1
    assert [one.aot_schedule for one in (*both, other)] == [False, False, True]


def test_a_cache_for_several_kinds_of_layers():
    mixed, plain = builder(several(FULL, WINDOW)), builder(several(FULL, NONE))
    assert set_attn([mixed], [plain]) == 1
    assert (mixed.aot_schedule, plain.aot_schedule) == (False, True)


def test_without_a_window_or_a_schedule_nothing_changes():
    builders = builder(FULL), builder(NONE), builder(WINDOW, aot=False)
    assert set_attn(builders) == 0 and [one.aot_schedule for one in builders] == [True, True, False]


def test_builders_of_other_backends_have_no_schedule():
    other = SimpleNamespace(kv_cache_spec=WINDOW)
    assert set_attn([other]) == 0 and vars(other) == {"kv_cache_spec": WINDOW}
