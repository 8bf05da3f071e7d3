"""Proof of vllm.mamba-decode-order: which tokens the state of a request holds that decodes without drafts beside a prompt.

Two long answers go on, which have no drafts in a step where a table says so, or where a grammar refuses them. Spared: prompts
of other lengths, and those of that length where all that decode have drafts.
"""

from dataclasses import replace
from functools import partial

from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, SCHEDULER, case
from attnfix.patches.lab.vllm.states import Runner, States, arrivals, refusing

from . import wrap

#: Of a step, at most
TOKENS = 32
#: Lengths, by drafts: of a verification; the rest of such a prompt that was cut, beside two verifications; and others
SHORT = {drafts: (1 + drafts, TOKENS - 1 - drafts) for drafts in (1, 2, 3)}
OTHERS = {drafts: tuple({2, 3, 4, 5, 9, 17} - {1 + drafts}) for drafts in (1, 2, 3)}


def beside(lengths):
    """Two at a time, which a step has room for."""
    return arrivals({at: (lengths,) for at in range(40) if at % 4 in (1, 2)}, beside=(9, 9), answer=(1,), steps=40)


def tabled(drafts, lengths, mode):
    """A step of three requests or more drafts nothing. The scheduler is a step ahead."""
    table = {"num_speculative_tokens_per_batch_size": [(1, 2, drafts), (3, 16, 0)]}
    return case(beside(lengths), model=NEMOTRON_H, drafts=drafts, mode=mode, speculative=table, ahead=True, max_tokens=TOKENS)


def refused(drafts, lengths, mode):
    """A step at a time: until the grammar answers, each draft has its row."""
    scheduler = {"async_scheduling": False}
    return case(refusing(beside(lengths)), model=NEMOTRON_H, drafts=drafts, mode=mode, scheduler=scheduler, max_tokens=TOKENS)


def with_drafts(of):
    """The scheduler is a step ahead, and no table says of a step that it drafts nothing."""
    return replace(of, launch={**of.launch, "speculative": {}, "scheduler": {}, "ahead": True})


AHEAD_WITH_DRAFTS = (
    "Keep asynchronous scheduling (no `--no-async-scheduling`) and give `--speculative-config` no "
    "`num_speculative_tokens_per_batch_size` with a 0"
)


class Proof(States):
    kind = partial(Runner, v2=True)
    modules = ("vllm.v1.worker.gpu.model_runner", SCHEDULER)
    may_lack = modules[:1]
    needs = "GPUModelRunner.gather_batch_req_state"
    absent = "Model Runner V2 does not sort a batch by drafts"
    bug = (
        tabled(1, SHORT[1], "none"), refused(3, SHORT[3], "none"), tabled(3, SHORT[3], "align"), refused(2, SHORT[2], "align"),
    )  # fmt: skip
    spared = (
        tabled(2, OTHERS[2], "align"), refused(1, OTHERS[1], "none"),
        case(beside(SHORT[3]), model=NEMOTRON_H, drafts=3, mode="none", max_tokens=TOKENS),
    )  # fmt: skip
    around = {AHEAD_WITH_DRAFTS: {"bug": tuple(map(with_drafts, bug))}}
    broken = {
        "nothing is moved": (wrap, "decodes_first", lambda *batch: None),
        "batches of an even number of tokens alone": (wrap.decodes_first, lambda real, batch, *more: (
            None if batch.num_tokens % 2 else real(batch, *more)
        )),
        "names are moved alone": (wrap, "reordered", lambda batch, order: (
            batch._replace(req_ids=[batch.req_ids[row] for row in order])
        )),
        "names are left": (wrap.reordered, lambda real, batch, order: real(batch, order)._replace(req_ids=batch.req_ids)),
    }  # fmt: skip
