"""Proof of vllm.accepted-counts-race: how many drafts of its last step does each row of a batch continue behind?

Spared: a step at a time; and rows that stay where they are.
"""

from dataclasses import replace
from types import SimpleNamespace

from attnfix.patches.lab.vllm.model_runner_v1 import (
    AT_ONCE,
    BEFORE_ORDERING,
    DRAFTS,
    MOMENTS,
    RUNNER,
    WHEN_WAITED,
    RunnerV1,
    requests,
)  # fmt: skip
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, case

from . import wrap

MAMBA = "vllm.v1.worker.mamba_utils"
#: Requests come and go; few at a time, so that often none goes on; and without room for all: some are preempted
STREAM, WAVES, SHORT = (0.7, 2, (2, 18)), (1.0, 2, (2, 3)), (0.5, 2, (30, 90))
#: Requests only come, and a step has room for a whole prompt: each row stays where it is. A prompt of several steps may end
#: with so few tokens that its row is moved to the decodes
STEADY = (0.3, 1, (400, 400))


def served(talk, moment=AT_ONCE, *, cached=True, ahead=True, **launch):
    (arrive, together, answered), steps = talk, 100 if talk is WAVES else 60
    launch = dict(drafts=DRAFTS, page_size=16, max_tokens=64, max_requests=10) | launch
    return case(
        requests(arrive, together, answered, moment, steps), caching=cached, scheduler={"async_scheduling": ahead}, **launch
    )


def steady(moment=AT_ONCE, cached=True):
    return served(STEADY, moment, cached=cached, max_requests=8, max_tokens=128)


def a_step_at_a_time(of):
    return replace(of, launch={**of.launch, "scheduler": {"async_scheduling": False}})


def rows(then, own=False):
    """The batch moves its counts themselves, or numbers with `own`; then, with these, what `then` does."""

    def of(batch):
        counts = batch.num_accepted_tokens_cpu
        former, numbers = counts.copy(), wrap.Rows(counts).numbers if own else counts
        return SimpleNamespace(numbers=numbers, moved=lambda: then(batch, numbers if own else former))

    return wrap, "rows_of", of


def stay(batch, numbers):
    batch.num_accepted_tokens_cpu = numbers


def put_back(batch, former):
    """The former counts, whether or not the copy had landed."""
    batch.num_accepted_tokens_cpu[:] = former


def put_one_back(batch, former):
    batch.num_accepted_tokens_cpu[:1] = former[:1]


def too_soon(instance):
    instance.input_batch.num_accepted_tokens_cpu.fill(1)
    return True


class Proof(RunnerV1):
    modules = (RUNNER, SCHEDULER, MAMBA)
    may_lack = (MAMBA,)
    measure = "share of requests that continue behind another number of tokens than were accepted"
    needs = "GPUModelRunner._compute_prev_positions"
    absent = "counts are not looked up by the rows of the step before"
    bug = (
        served(WAVES, WHEN_WAITED, max_requests=2),
        *(served(STREAM, moment) for moment in MOMENTS),
        *(served(STREAM, moment, cached=False) for moment in (AT_ONCE, BEFORE_ORDERING, WHEN_WAITED)),
    )
    spared = (
        *(served(STREAM, cached=cached, ahead=False) for cached in (False, True)),
        served(SHORT, ahead=False, max_requests=6, blocks=44, context=160),
        *(steady(moment) for moment in (AT_ONCE, BEFORE_ORDERING, WHEN_WAITED)),
        steady(cached=False),
    )
    around = {"`--no-async-scheduling`": {"bug": tuple(map(a_step_at_a_time, bug))}}
    broken = {
        "counts are moved with their rows": rows(lambda *_: None),
        "counts are kept from then on": rows(stay, own=True),
        "the first row alone keeps its count": rows(put_one_back),
        "what was there before is put back": rows(put_back),
        "new requests have the counts that lie there": (wrap, "counts_for_strangers", lambda instance: False),
        "counts are set to 1 while a copy is under way": (wrap, "counts_for_strangers", too_soon),
    }
    #: Else nobody waits for a copy in mode "align"
    broken_where = dict.fromkeys([*broken][3:], f"{MAMBA}:postprocess_mamba_align_gpu")
