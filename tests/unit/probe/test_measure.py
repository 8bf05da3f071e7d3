"""How far answers are apart, and what figures make a verdict."""

from __future__ import annotations

import math
import random

import pytest

from attnfix.probe import verdicts
from attnfix.probe.answers import Answer, distance, moved
from attnfix.probe.relations import WHOLE, cuts_of
from attnfix.probe.run import Plan, Run
from attnfix.probe.verdicts import BROKEN, HOLDS, UNCLEAR, Margin, Tally


def listed(logits: list[float], top: int = 20) -> dict[int, float]:
    whole = math.log(sum(map(math.exp, logits)))
    best = sorted(range(len(logits)), key=lambda at: -logits[at])[:top]
    return {at: logits[at] - whole for at in best}


@pytest.mark.parametrize("size", [0.01, 0.1, 0.5])
def test_the_distance_is_about_the_change_of_a_log_probability(size):
    draw = random.Random(1)
    base = [draw.gauss(0, 3) for _ in range(500)]
    figures = [moved(listed(base), listed([each + draw.gauss(0, size) for each in base])) for _ in range(50)]
    assert size / 3 < sorted(figures)[25] < 3 * size


def test_equal_answers_are_not_apart_and_answers_without_a_token_in_common_are():
    assert moved({1: -0.5, 2: -1.2}, {1: -0.5, 2: -1.2}) == pytest.approx(0, abs=1e-6)
    assert moved({1: -0.01}, {2: -0.01}) > 1


def test_numbers_that_are_none_are_infinitely_far():
    right = Answer((1,), ({1: -0.1},))
    assert distance(right, Answer(not_finite=True)) == math.inf
    assert moved({1: -0.1}, {}) == math.inf


def test_positions_behind_a_token_that_differs_are_not_compared():
    first, other = {1: -0.7, 2: -0.71}, {5: -0.1, 6: -3.0}
    left, right = Answer((1, 5), (first, other)), Answer((2, 6), (first, {6: -0.01, 5: -6.0}))
    assert distance(left, right) == pytest.approx(0, abs=1e-6)
    assert distance(left, Answer((1, 6), right.listed)) > 1


def tally(relation: str, *moved_: float, missed: tuple[str, ...] = ()) -> Tally:
    return Tally(relation, list(moved_), list(missed))


MARGIN = Margin(0.1, 0.05, "")


def test_few_prompts_that_all_exceed_are_enough_and_one_is_not():
    others = [tally(str(at), *[0.01] * 8) for at in range(5)]
    bad = tally("bad", *[0.5] * 4)
    assert verdicts.row(bad, [bad, *others], MARGIN)["verdict"] == BROKEN
    once = tally("bad", 0.5, *[0.01] * 7)
    assert verdicts.row(once, [once, *others], MARGIN)["verdict"] == UNCLEAR
    assert verdicts.row(others[0], [bad, *others], MARGIN)["verdict"] == HOLDS


def test_who_speaks_against_the_server_is_asked_on_and_a_fault_in_one_prompt_of_five_is_seen():
    def open_(moved, rounds):
        run = Run.__new__(Run)
        run.plan, run.tallies = Plan(prompts=8), [Tally("burst", moved), *(Tally(str(other), [0.01] * 8) for other in range(5))]
        return [tally.relation for tally in run._open(rounds, 0.08)]

    assert open_([0.4] * 6 + [0.01] * 26, 32) == ["burst"]
    assert open_([0.4] * 1 + [0.01] * 31, 32) == []
    assert open_([0.4] * 20 + [0.01] * 76, 96) == []  # it is known
    assert open_([0.4] * 6 + [0.01] * 26, 8 * verdicts.MOST) == []
    assert verdicts.broken([Tally("burst", [0.4] * 20 + [0.01] * 76)], 0.08) == {"burst"}


def test_nothing_is_broken_without_an_effect_beyond_the_margin():
    small = tally("small", *[0.099] * 30)
    assert verdicts.broken([small], 0.1) == set()


def test_what_could_not_be_asked_is_unclear_and_says_why():
    row = verdicts.row(tally("again", missed=("no proof",)), [tally("again")], MARGIN)
    assert row["verdict"] == UNCLEAR and "no proof" in row["reason"] and row["worst"] is None


def test_the_bet_is_fair_under_the_null():
    """The mean of an e-value is 1 where one prompt in twenty exceeds: more would make it a false alarm."""
    count, share = 12, 0.05
    mean = sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) * verdicts.e_value(k, count) for k in range(count + 1)
    )
    assert mean == pytest.approx(1)


def test_the_margin_follows_the_floor_between_what_is_usual_and_what_no_healthy_server_shows():
    dense = {"num_hidden_layers": 4}
    assert verdicts.margin([0.01], "auto", dense).nat == 0.08
    assert verdicts.margin([0.1], "auto", dense).nat == pytest.approx(0.2)
    assert verdicts.margin([9.0], "auto", dense).nat == pytest.approx(0.32)
    assert verdicts.margin([9.0], "auto", None).nat == 1
    assert verdicts.margin([], "fp8_e4m3", dense).nat == 0.45
    assert verdicts.margin([], None, {"text_config": {"num_experts": 8}}).nat == 0.5


def test_what_holds_says_how_small_a_fault_would_have_been_seen():
    assert verdicts.smallest(16, 6) < verdicts.smallest(8, 6) < 0.6
    assert verdicts.smallest(1, 6) > 0.9 and verdicts.smallest(1, 10**6) is None


def test_cuts_are_on_and_beside_every_border():
    class Facts:
        block, chunk, window, drafts = 16, 512, 100, 3

    cuts = cuts_of(Facts, 1000)
    assert {16, 511, 512, 513, 99, 100, 101, 999} <= set(cuts) and min(cuts) >= 16 and max(cuts) < 1000
    assert cuts_of(Facts, 10) == {9: WHOLE}
    assert [cut for cut, name in cuts.items() if name == WHOLE] == [992, 995, 996, 997, 999]  # whole pages are found, no more
    Facts.block = 1
    assert {name for cut, name in cuts_of(Facts, 1000).items() if 995 <= cut <= 997} == {
        f"all but a step of speculation{beside}" for beside in ("", ", 1 less", ", 1 more")
    }


def test_circumstances_are_counted_by_prompt_and_a_name_that_is_lost_counts():
    bad = Tally("cached prefix")
    for _ in range(6):
        bad.take([("half", 0.01, ""), (WHOLE, 0.5, "")])
    bad.take([("half", 0.01, "Maria")])
    assert bad.exceeded(0.1) == 7 and bad.moved[-1] == 0.01
    assert bad.where(0.1) == [{"at": "half", "prompts": 7, "exceeded": 1}, {"at": WHOLE, "prompts": 6, "exceeded": 6}]
    assert verdicts.row(bad, [bad], MARGIN)["lost"] == ["Maria"]
