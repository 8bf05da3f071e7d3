"""vllm.padded-one-token-prompt and vllm.mamba2-padded-tail in real releases, whose scheduler is a step ahead of results."""

from __future__ import annotations

import pytest

HEAD = """
from contextlib import suppress
from attnfix.patches.lab.vllm import kernels
kernels.stand_in()
from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, Engine, modes
from attnfix.patches.lab.vllm.states import Ended, Runner, ends_meet

def serve(mode, drafts, watch=lambda engine: None, v2=False, waves=8, **more):
    with Engine(NEMOTRON_H, drafts=drafts, ahead=True, max_tokens=128, context=64, mode=mode, **more) as engine:
        watch(engine)
        runner = Runner(engine, 7, v2=v2)
        with suppress(Ended):
            ends_meet(waves=waves)(runner)
        return runner
"""

FORETOLD = """
from attnfix.patches.vllm.shared.unpadded import verifies

seen = []

def watch(engine):
    def schedule(real=engine.scheduler.schedule):
        said = verifies(engine.scheduler)
        step = real()
        begun = {new.req_id for new in step.scheduled_new_reqs} | set(step.scheduled_cached_reqs.resumed_req_ids)
        seen.append((said, any(step.scheduled_spec_decode_tokens.get(name) for name in step.num_scheduled_tokens
                               if name not in begun), len(engine.under_way)))
    
        return step
    engine.scheduler.schedule = schedule
"""


@pytest.mark.parametrize("release", ["0.25.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.33.0"])
def test_it_is_foretold_in_which_steps_drafts_are_verified(engine_fork, release):
    """By the engine's own scheduler, stock."""
    code = HEAD + FORETOLD + "for drafts in 1, 3:\n    serve('none', drafts, watch)\nanswer(seen)"
    seen = engine_fork("vllm", release).evaluate(code, ATTNFIX="0")
    assert {under_way for *_, under_way in seen} == {0, 1}
    assert {said for said, *_ in seen} == {True, False}
    assert all(said == verified for said, verified, _ in seen)


def test_in_a_pipeline_too_whose_stages_have_a_step_each_under_way(engine_fork):
    more = "v2=True, parallel={'pipeline_parallel_size': 2}"
    code = HEAD + FORETOLD + f"serve('none', 2, watch, {more})\nanswer(seen)"
    seen = engine_fork("vllm", "0.33.0").evaluate(code, ATTNFIX="0")
    assert max(under_way for *_, under_way in seen) == 2
    assert {said for said, *_ in seen} == {True, False}
    assert all(said == verified for said, verified, _ in seen)


@pytest.mark.parametrize("release", ["0.30.0", "0.31.0"])
def test_no_server_ends_where_prompts_of_one_token_begin_beside_others_that_end(engine_fork, release):
    """With a KV connector, where each block keeps a state: a layer asserts that drafts are verified where anybody decodes."""
    code = HEAD + "runner = serve('all', 2, brought=True)\nanswer([runner.misled, runner.harmed, runner.wrong, runner.seen])"
    environment = engine_fork("vllm", release)
    stock, fixed = environment.evaluate(code, ATTNFIX="0"), environment.evaluate(code)
    assert stock[:2] == fixed[:2] == [False, False]
    assert stock[2] > 0 == fixed[2]


@pytest.mark.parametrize("release", ["0.28.0", "0.33.0"])
def test_nobody_at_the_context_limit_pays_for_a_prompt_of_one_token(engine_fork, release):
    code = (
        HEAD + "served = [serve('none', drafts) for drafts in (1, 3)]\nanswer([[each.harmed, each.wrong] for each in served])"
    )
    environment = engine_fork("vllm", release)
    assert all(wrong for _, wrong in environment.evaluate(code, ATTNFIX="0"))
    assert environment.evaluate(code) == [[False, 0], [False, 0]]


@pytest.mark.parametrize("release", ["0.25.0", "0.29.0", "0.33.0"])
def test_requests_that_are_preempted_go_on_right(engine_fork, release):
    code = (
        HEAD
        + """
preempted = []

def watch(engine):
    def preempt(request, *args, real=engine.scheduler._preempt_request, **kwargs):
        preempted.append(request.request_id)
        return real(request, *args, **kwargs)
    engine.scheduler._preempt_request = preempt

served = [serve("align", drafts, watch, waves=16, blocks=24) for drafts in (1, 2, 3)]
answer([len(preempted), [[each.harmed, each.wrong] for each in served]])
"""
    )
    preempted, served = engine_fork("vllm", release).evaluate(code)
    assert preempted and served == [[False, 0]] * 3


#: Two requests decode until the pool is exhausted, a connector brings a third, and a prompt of one token waits. Blocks of
#: requests whose step is under way are not freed, and the third one's KV is there at that very time.
EXHAUSTED = (
    HEAD
    + """
def load_alone(scheduler, prompt):
    def matched(request, computed, real=scheduler.connector.get_num_new_matched_tokens):
        tokens = real(request, computed)[0]
        return tokens, bool(tokens) and request.num_prompt_tokens == prompt
    scheduler.connector.get_num_new_matched_tokens = matched

def bring_where_none_is_left(scheduler, stopped):
    def allocate(request, *args, real=scheduler.kv_cache_manager.allocate_slots, **more):
        blocks = real(request, *args, **more)
        if blocks is None and request.status.name == "RUNNING":
            stopped.append(request.request_id)
            scheduler.finished_recving_kv_req_ids.update(
                name for name, one in scheduler.requests.items() if one.status.name == "WAITING_FOR_REMOTE_KVS")
        return blocks
    scheduler.kv_cache_manager.allocate_slots = allocate

def exhaust(mode, blocks, stopped):
    given = dict(drafts=2, ahead=True, max_tokens=128, context=64, blocks=blocks)
    with Engine(NEMOTRON_H, **given, mode=mode, brought=True) as engine:
        scheduler = engine.scheduler
        load_alone(scheduler, 6)
        bring_where_none_is_left(scheduler, stopped)
        runner = Runner(engine, 7)
        runner.ask(9, 50), runner.ask(9, 50)
        try:
            for at in range(30):
                if at == 2:
                    runner.ask(6, 8)
                if at > 2 and not any(one.num_tokens == 1 for one in scheduler.requests.values()):
                    runner.ask(1, 30)
                runner.step()
        except Ended:
            pass
        return [runner.misled, runner.harmed]

stopped = []
answer([[exhaust(mode, blocks, stopped) for mode in [*modes(), "none"] for blocks in (20, 21, 22)], len(stopped)])
"""
)


@pytest.mark.parametrize("release", ["0.30.0", "0.31.0"])
def test_no_server_ends_where_the_scheduler_stops_before_any_request_that_decodes(engine_fork, release):
    environment = engine_fork("vllm", release)
    stock, fixed = environment.evaluate(EXHAUSTED, ATTNFIX="0"), environment.evaluate(EXHAUSTED)
    assert stock[1] and fixed[1]
    assert stock[0] == fixed[0] == [[False, False]] * 9
