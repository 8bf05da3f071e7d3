"""vllm.mamba2-padded-tail and vllm.padded-one-token-prompt: in which steps the scheduler pads no prompt."""

from __future__ import annotations

import ast
import sys
from collections import deque
from copy import copy
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import pytest

from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba2_padded_tail.fix import FIX as TAIL
from attnfix.patches.vllm.padded_one_token_prompt.fix import FIX as ONE
from attnfix.patches.vllm.shared.unpadded import orders_by_tokens
from tests.support import one_call

DRAFTS = 3
#: Each release that either fix patches
PADDED = pytest.mark.parametrize(
    "release",
    sorted({name for fix in (TAIL, ONE) for name, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED}),
)


class Kind(Enum):
    MAMBA2 = auto()
    GDN_ATTN = auto()


def group(kind=None, nested=False):
    spec = SimpleNamespace(**({"mamba_type": kind} if kind else {}))
    return SimpleNamespace(kv_cache_spec=SimpleNamespace(kv_cache_specs={"layer": spec}) if nested else spec)


def running(drafts=DRAFTS, computed=50, under_way=0, **more):
    """A request of a prompt of 40 tokens that wants 20, in step 8; under_way: tokens that it may get of steps under way."""
    given = dict(
        num_prompt_tokens=40, max_tokens=20, is_prefill_chunk=False, mm_features=[], next_decode_eligible_step=8,
        request_id="running",
    )  # fmt: skip
    return SimpleNamespace(
        spec_token_ids=[-1] * drafts, num_computed_tokens=computed, num_output_placeholders=under_way, **(given | more)
    )


def one(**more):
    """A prompt of one token that waits."""
    given = dict(num_tokens=1, num_computed_tokens=0, status=SimpleNamespace(name="WAITING"))
    return SimpleNamespace(**(given | more))


def scheduler(*kinds, waiting=("a",), skipped=(), nested=False, **more):
    """One that has a request to run, and pads those that begin where it has no table."""
    given: dict[str, Any] = dict(
        waiting=list(waiting), skipped_waiting=list(skipped), num_spec_tokens=DRAFTS, dynamic_sd_lookup=None, requests={},
        max_model_len=100, running=[running()], current_step=7, finished_recving_kv_req_ids=set(),
        kv_cache_config=SimpleNamespace(kv_cache_groups=[group(), *(group(kind, nested) for kind in kinds)]),
    )  # fmt: skip
    given |= more
    return SimpleNamespace(**given | {"running": [*map(copy, given["running"])]})


def schedule_in(self, throttle_prefills=False):
    """A step of all that run, but for who has to wait in a pipeline, and of a row of each that waits: one token, or padded."""
    table = self.dynamic_sd_lookup
    begun = [*self.waiting, *self.skipped_waiting]
    size = 1 + DRAFTS if table is None else 1
    run = {request.request_id: 1 + DRAFTS for request in self.running if request.next_decode_eligible_step < 9}
    for request in self.running:
        request.is_prefill_chunk = False  # those were the last tokens of its prompt
    known = [self.requests.setdefault(name, one(num_tokens=30, num_computed_tokens=29)) for name in begun]
    new = [SimpleNamespace(req_id=name, num_computed_tokens=each.num_computed_tokens) for name, each in zip(begun, known)]
    return SimpleNamespace(
        num_scheduled_tokens={**run, **dict.fromkeys(begun, size)},
        scheduled_new_reqs=new,
        scheduled_cached_reqs=SimpleNamespace(req_ids=[*run], num_computed_tokens=[50] * len(run), resumed_req_ids=set()),
        drafts=DRAFTS if table is None else table[len(begun) + 1],
    )  # fmt: skip


def schedule(instance, fix=TAIL, state=None):
    """(tokens of the request "a", drafts of the next step, corrections)"""
    state = state or FixState(fix)
    state.fired = True
    table = instance.dynamic_sd_lookup
    step = one_call.run(one_call.target_of(fix, "schedule"), schedule_in, state, instance)
    assert instance.dynamic_sd_lookup is table
    return step.num_scheduled_tokens.get("a"), step.drafts, state.counters.corrections


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("queues", [{}, {"waiting": (), "skipped": ("a",)}], ids=["waiting", "skipped"])
def test_with_mamba2_a_request_that_begins_is_not_padded(queues, nested):
    assert schedule(scheduler(Kind.MAMBA2, nested=nested, **queues)) == (1, DRAFTS, 1)


@pytest.mark.parametrize("kinds", [(), (Kind.GDN_ATTN,)])
def test_other_models_are_padded_as_ever(kinds):
    assert schedule(scheduler(*kinds)) == (1 + DRAFTS, DRAFTS, 0)


@pytest.mark.parametrize(
    ("others", "size"),
    [
        ([], 1 + DRAFTS),
        ([running(drafts=0)], 1 + DRAFTS),
        ([running(computed=98, max_tokens=900)], 1 + DRAFTS),
        ([running(drafts=0), running(drafts=1, computed=97, max_tokens=900)], 1),
        ([running(computed=62, under_way=4)], 1 + DRAFTS),
        ([running(computed=61, under_way=4)], 1),
        ([running(computed=60)], 1),
        ([running(next_decode_eligible_step=9)], 1 + DRAFTS),
        ([running(next_decode_eligible_step=9), running()], 1),
        ([running(is_prefill_chunk=True)], 1 + DRAFTS),
        ([running(mm_features=["image"])], 1),
    ],
    ids=[
        "none runs", "one without drafts", "no room for a draft", "one has a draft and room", "its last step is under way",
        "its last step but one is under way", "nothing is under way", "a pipeline takes it later", "a pipeline takes another",
        "one is at its prompt", "an image",
    ],
)  # fmt: skip
@pytest.mark.parametrize("fix", [TAIL, ONE])
def test_where_no_other_request_verifies_drafts_the_padding_stays(fix, others, size):
    instance = scheduler(Kind.MAMBA2, running=others, attnfix_one_token=deque("a"), requests={"a": one()})
    assert schedule(instance, fix)[0] == size


@pytest.mark.parametrize("fix", [TAIL, ONE])
def test_where_another_server_makes_embeddings_who_has_images_may_wait(fix):
    instance = scheduler(
        Kind.MAMBA2, running=[running(mm_features=["image"])], ec_connector=object(), attnfix_one_token=deque("a"),
        requests={"a": one()},
    )  # fmt: skip
    assert schedule(instance, fix)[0] == 1 + DRAFTS


def pool(deferred, mode="none", blocks=0):
    """What a scheduler has that knows requests whose blocks cannot be freed yet (from 0.30.0 on)."""
    return {
        "defer_block_free": deferred, "_request_blocks_can_be_freed": lambda request: not deferred,
        "cache_config": SimpleNamespace(mamba_cache_mode=mode),
        "kv_cache_manager": SimpleNamespace(block_pool=SimpleNamespace(get_num_free_blocks=lambda: blocks)),
    }  # fmt: skip


ENOUGH = 2 * 3 * (1 + DRAFTS)


@pytest.mark.parametrize(
    ("given", "others", "size"),
    [
        (pool(True, "all", ENOUGH - 1), [running()], 1 + DRAFTS),
        (pool(True, "all", ENOUGH), [running()], 1),
        (pool(True, "all", ENOUGH), [running(drafts=0), running()], 1 + DRAFTS),
        (pool(False, "all"), [running(drafts=0), running()], 1),
        (pool(True), [running()], 1),
        (pool(True, "align"), [running(drafts=0), running()], 1 + DRAFTS),
        (pool(True, "align"), [running(is_prefill_chunk=True), running()], 1 + DRAFTS),
        (pool(True, "align"), [running(computed=62, under_way=4), running()], 1),
        (pool(True, "align"), [running(computed=62, under_way=4)], 1 + DRAFTS),
    ],
    ids=[
        "a block is missing", "blocks are enough", "all: the first has no drafts", "no block is held back", "none: no blocks",
        "the first has no drafts", "the first is at its prompt", "the first is passed over", "everybody is passed over",
    ],
)  # fmt: skip
@pytest.mark.parametrize("fix", [TAIL, ONE])
def test_where_the_scheduler_may_stop_before_any_request_the_padding_stays(fix, given, others, size):
    instance = scheduler(Kind.MAMBA2, running=others, attnfix_one_token=deque("a"), requests={"a": one()}, **given)
    assert schedule(instance, fix)[0] == size


def test_up_to_0_29_no_scheduler_stops_before_any_request():
    instance = scheduler(Kind.MAMBA2, defer_block_free=True, cache_config=SimpleNamespace(mamba_cache_mode="all"))
    assert schedule(instance) == (1, DRAFTS, 1)


AT_ITS_PROMPT = running(is_prefill_chunk=True, request_id="chunk")


@pytest.mark.parametrize(
    ("request_that_begins", "beside", "counts"),
    [
        (one(num_tokens=50, num_computed_tokens=49), [], [1, 0]),
        (one(), [], [1, 1]),
        (one(num_tokens=96, num_computed_tokens=95), [], [1, 0]),
        (one(num_tokens=97, num_computed_tokens=96), [], [0, 0]),
        (one(num_tokens=50), [], [0, 0]),
        (one(), [AT_ITS_PROMPT], [0, 0]),
        (one(), [running(is_prefill_chunk=True, request_id="chunk", next_decode_eligible_step=9)], [1, 1]),
    ],
    ids=[
        "its last token", "its only token", "there is just room for placeholders", "there is no room for placeholders",
        "the first of its tokens, for which there was budget", "beside a chunk", "a chunk is not in the step",
    ],
)  # fmt: skip
def test_what_stock_schedules_the_same_is_not_counted(request_that_begins, beside, counts):
    """A prompt of one token waits, too."""
    found = []
    for fix in (TAIL, ONE):
        requests = {"a": copy(request_that_begins), "b": one(request_id="b")}
        instance = scheduler(Kind.MAMBA2, running=[running(), *beside], requests=requests, attnfix_one_token=deque("b"))
        tokens, _, corrections = schedule(instance, fix)
        assert tokens == 1
        found.append(corrections)
    assert found == counts


def test_where_nothing_waits_nothing_is_done():
    assert schedule(scheduler(Kind.MAMBA2, waiting=())) == (None, DRAFTS, 0)


@pytest.mark.parametrize("fix", [TAIL, ONE])
def test_a_table_of_the_servers_own_stays(fix):
    own = [2] * 9
    instance = scheduler(Kind.MAMBA2, dynamic_sd_lookup=own, attnfix_one_token=deque("a"))
    assert schedule(instance, fix) == (1, 2, 0)


def test_without_drafts_or_in_releases_without_tables_nothing_is_done():
    assert schedule(scheduler(Kind.MAMBA2, num_spec_tokens=0))[2] == 0
    target, instance = one_call.target_of(TAIL, "schedule"), scheduler(Kind.MAMBA2)
    del instance.dynamic_sd_lookup
    assert not target.needed(None, instance)


@pytest.mark.parametrize("fix", [TAIL, ONE])
def test_the_table_is_gone_where_the_engine_fails(fix):
    def fails(self):
        raise ValueError("the engine's own")

    instance = scheduler(Kind.MAMBA2, attnfix_one_token=deque("a"), requests={"a": one()})
    with pytest.raises(ValueError, match="the engine's own"):
        one_call.run(one_call.target_of(fix, "schedule"), fails, FixState(fix), instance)
    assert instance.dynamic_sd_lookup is None


def add(instance, name, tokens, state=None):
    request = one(request_id=name, num_tokens=tokens)

    def add_in(self, request):
        self.requests[request.request_id] = request

    one_call.run(one_call.target_of(ONE, "add_request"), add_in, state or FixState(ONE), instance, request)
    return request


@pytest.mark.parametrize("kind", Kind)
def test_a_prompt_of_one_token_is_not_padded_until_it_has_got_a_token(kind):
    instance, state = scheduler(kind), FixState(ONE)
    request = add(instance, "a", 1)
    assert schedule(instance, ONE, state) == (1, DRAFTS, 1)
    assert schedule(instance, ONE, state) == (1, DRAFTS, 2), "it was preempted, and begins again"
    request.num_tokens += 1
    assert schedule(instance, ONE, state) == (1 + DRAFTS, DRAFTS, 2)
    assert not instance.attnfix_one_token


def test_of_two_prompts_of_one_token_neither_is_forgotten_for_the_other():
    instance, state = scheduler(Kind.GDN_ATTN), FixState(ONE)
    add(instance, "b", 1).num_tokens = 2
    add(instance, "a", 1)
    assert schedule(instance, ONE, state) == (1, DRAFTS, 1)


def test_a_request_that_is_gone_is_forgotten():
    instance = scheduler(Kind.GDN_ATTN)
    add(instance, "a", 1)
    del instance.requests["a"]
    assert schedule(instance, ONE) == (1 + DRAFTS, DRAFTS, 0)


def test_where_nobody_ever_has_drafts_requests_are_forgotten_all_the_same():
    instance = scheduler(Kind.GDN_ATTN, running=[running(drafts=0)])
    for at in range(9):
        add(instance, f"{at}", 1).num_tokens += at > 0
        schedule(instance, ONE)
    assert "0" in instance.attnfix_one_token and len(instance.attnfix_one_token) < 4


class Counting(dict):
    """Requests by id; counts how often one was looked up."""

    looks = 0

    def get(self, name, default=None):
        self.looks += 1
        return super().get(name, default)

    def __contains__(self, name):
        self.looks += 1
        return super().__contains__(name)


@pytest.mark.parametrize("may_begin", [True, False])
def test_however_many_prompts_of_one_token_wait_few_are_looked_at_in_a_step(may_begin):
    """Those whose step is under way may not begin. Where the few do not tell, the step pads no prompt."""
    instance, state = scheduler(Kind.GDN_ATTN, requests=Counting()), FixState(ONE)
    for at in range(5000):
        add(instance, f"{at}", 1, state).num_computed_tokens = int(not may_begin)
    for _ in range(9):
        instance.requests.looks = 0
        assert schedule(instance, ONE, state)[0] == 1
        assert 0 < instance.requests.looks <= 32


def test_a_prompt_that_may_begin_is_found_behind_many_that_may_not():
    instance, state = scheduler(Kind.GDN_ATTN), FixState(ONE)
    for at in range(100):
        add(instance, f"{at}", 1, state).num_computed_tokens = int(at < 99)
    assert all(schedule(instance, ONE, state)[0] == 1 for _ in range(9))


def test_of_requests_that_are_gone_few_are_remembered():
    """Beside one that waits for long, which each step finds first."""
    instance, state = scheduler(Kind.GDN_ATTN), FixState(ONE)
    add(instance, "long", 1, state)
    for at in range(5000):
        add(instance, f"{at}", 1, state)
        schedule(instance, ONE, state)
        del instance.requests[f"{at}"]
    assert len(instance.attnfix_one_token) < 9


@pytest.mark.parametrize(
    ("request_of_one", "size"),
    [
        (one(num_computed_tokens=1), 1 + DRAFTS),
        (one(num_computed_tokens=1, status=SimpleNamespace(name="WAITING_FOR_REMOTE_KVS"), request_id="b"), 1 + DRAFTS),
        (one(num_computed_tokens=1, status=SimpleNamespace(name="WAITING_FOR_REMOTE_KVS"), request_id="here"), 1),
    ],
    ids=["its step is under way", "it is still loaded", "it is loaded"],
)
def test_a_prompt_of_one_token_that_cannot_begin_leaves_others_as_they_are(request_of_one, size):
    instance = scheduler(
        Kind.GDN_ATTN, attnfix_one_token=deque("b"), requests={"b": request_of_one}, finished_recving_kv_req_ids={"here"}
    )
    assert schedule(instance, ONE)[0] == size
    assert instance.attnfix_one_token == deque("b"), "it may be preempted, and begin again"


@pytest.fixture
def runner_v2(monkeypatch, tmp_path):
    """`runner_v2(source)`: a vLLM whose module of Model Runner V2 holds this; None: it has none."""

    def make(source):
        path = tmp_path / "v1" / "worker" / "gpu" / "model_runner.py"
        path.parent.mkdir(parents=True)
        if source is not None:
            path.write_text(source)
        monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__path__=[str(tmp_path)]))

    return make


#: A prompt of one token leads a batch that is ordered by tokens alone
BY_TOKENS = "def order(tokens):\n    return sorted(tokens, key=tokens.get)\n"
DRAFTS_LEAD = "def sort_batch_req_ids(num_tokens_per_req, decode_query_len): ...\n"


@pytest.mark.parametrize(
    ("source", "v2", "tokens", "size"),
    [
        (BY_TOKENS, True, (9,), 1),
        (BY_TOKENS, True, (9, 1), 1 + DRAFTS),
        (None, True, (9, 1), 1 + DRAFTS),
        (BY_TOKENS, False, (9, 1), 1),
        (DRAFTS_LEAD, True, (9, 1), 1),
    ],
)
@pytest.mark.parametrize("queue", ["waiting", "skipped_waiting"])
def test_no_prompt_of_one_token_is_put_before_verified_drafts_of_mamba2(runner_v2, queue, source, v2, tokens, size):
    runner_v2(source)
    requests = {name: one(request_id=name, num_tokens=count) for name, count in zip("ab", tokens, strict=False)}
    instance = scheduler(Kind.MAMBA2, waiting=(), use_v2_model_runner=v2, requests=requests)
    setattr(instance, queue, list(requests))
    assert schedule(instance, TAIL)[0] == size


class Queue(list):
    """One that nobody may walk through; counts how many requests of the table were walked over, which are all in it."""

    def __iter__(self):
        raise AssertionError("the queue was walked through")


class Walked(dict):
    steps = 0

    def values(self):
        return Steps(self)


class Steps:
    def __init__(self, table):
        self.table = table

    def __reversed__(self):
        for request in reversed(list(dict.values(self.table))):
            self.table.steps += 1
            yield request


def test_no_step_walks_through_the_queue(runner_v2):
    """Each request is looked at once. Those that came before a step are found, whatever has gone in between."""
    runner_v2(BY_TOKENS)
    instance = scheduler(Kind.MAMBA2, use_v2_model_runner=True, requests=Walked())
    target = one_call.target_of(TAIL, "schedule")

    def comes(name, tokens):
        instance.requests[name] = one(request_id=name, num_tokens=tokens)

    for at in range(500):
        comes(f"{at}", 9)
    instance.waiting = Queue(instance.requests)
    assert target.needed(None, instance) and instance.requests.steps == 500
    for at in range(400, 500):
        del instance.requests[f"{at}"]
    assert target.needed(None, instance) and instance.requests.steps == 501
    comes("one", 1), comes("long", 9)
    assert not target.needed(None, instance) and instance.requests.steps == 504
    instance.requests["one"].num_tokens = 2
    assert target.needed(None, instance) and instance.requests.steps == 505


@pytest.mark.parametrize(("kind", "size"), [(Kind.MAMBA2, 1 + DRAFTS), (Kind.GDN_ATTN, 1)])
def test_where_batches_are_ordered_by_tokens_a_prompt_of_one_token_is_left_alone_but_for_gdn(runner_v2, kind, size):
    runner_v2(BY_TOKENS)
    instance, state = scheduler(kind, use_v2_model_runner=True), FixState(ONE)
    add(instance, "a", 1, state)
    assert schedule(instance, ONE, state)[0] == size


def test_an_id_that_the_other_fix_keeps_is_left_alone_where_batches_are_ordered_by_tokens(runner_v2):
    runner_v2(BY_TOKENS)
    requests = {"a": one(request_id="a")}
    instance, state = scheduler(Kind.MAMBA2, use_v2_model_runner=True, requests=requests), FixState(ONE)
    add(instance, "a", 1, state)
    assert not one_call.target_of(TAIL, "schedule").needed(None, instance), "it looks, and keeps the id"
    assert schedule(instance, ONE, state)[0] == 1 + DRAFTS


@PADDED
def test_model_runner_v2_of_a_release_orders_by_tokens_alone_in_0_25(release):
    assert orders_by_tokens(str(fetch.fetch("vllm", release) / "vllm")) == release.startswith("0.25.")


def test_longer_prompts_and_models_without_states_are_not_remembered():
    for instance, tokens in ((scheduler(Kind.GDN_ATTN), 2), (scheduler(), 1)):
        add(instance, "a", tokens)
        assert schedule(instance, ONE) == (1 + DRAFTS, DRAFTS, 0)


@PADDED
def test_nothing_but_the_target_reads_the_table_that_is_set_for_a_step(release):
    """So what else the scheduler calls needs no witness: it runs as it is (tests/robustness/witness_coverage.py)."""
    engine = fetch.fetch("vllm", release) / "vllm" / "v1"
    named = {path: path.read_text() for path in engine.rglob("*.py") if "dynamic_sd_lookup" in path.read_text()}
    assert [str(path.relative_to(engine)) for path in named] == ["core/sched/scheduler.py"]
    functions = [node for node in ast.walk(ast.parse(*named.values())) if isinstance(node, ast.FunctionDef)]
    reading = {function.name for function in functions if "dynamic_sd_lookup" in ast.unparse(function)}
    assert reading == {"__init__", "schedule"}


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
