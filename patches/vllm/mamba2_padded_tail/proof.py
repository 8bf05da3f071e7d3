"""Proof of vllm.mamba2-padded-tail: which tokens a state of Mamba2 holds behind a prompt of which one token was left.

A connector brings all of a prompt but its last token. Spared: prompts that are computed here, whole and in chunks, and a model
with Gated DeltaNet, whose builder takes a padded prompt for a decode.
"""

from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT, case
from attnfix.patches.lab.vllm.states import PADDINGS, States, arrivals, ends_meet, limit_meets, within_a_block

from . import wrap

#: One by one, and two at a time. Chunks end at multiples of what a step has left: 33 is one more, where nobody decodes
PROMPTS = {1: (range(2, 30), 33), 2: (range(2, 60),), 4: (range(2, 30), range(40, 43)), 6: (range(2, 90),)}
TAILS, WITHIN = (arrivals(PROMPTS, fit=fit) for fit in (int, within_a_block))
#: In mode "all" a layer ends the server where one token of a prompt is left and nobody has drafts
BESIDE = arrivals(PROMPTS, beside=(1,))
MAMBA, GDN = (dict(model=model, max_tokens=32) for model in (NEMOTRON_H, QWEN3_NEXT))
#: The scheduler a step ahead. In mode "all" stock ends the server
AHEAD = dict(model=NEMOTRON_H, ahead=True, max_tokens=128, context=64, brought=True)


class Proof(States):
    needs = "Scheduler.schedule: pad_spec_decode"
    absent = "the last token of a prompt is not padded"
    bug = (
        *(case(TAILS, **MAMBA, drafts=drafts, mode="none", brought=True) for drafts in (1, 3)),
        case(TAILS, **MAMBA, drafts=2, mode="align", brought=True),
        case(BESIDE, **MAMBA, drafts=3, mode="all", brought=True),
        # One token alone is another bug
        *(case(ends_meet(2), **AHEAD, drafts=drafts, mode=mode) for drafts, mode in ((2, "none"), (3, "align"))),
        *(case(limit_meets(2), **AHEAD, drafts=drafts, mode=mode) for drafts, mode in ((2, "none"), (3, "align"))),
    )
    spared = (
        case(TAILS, **MAMBA, drafts=1, mode="none"),
        case(TAILS, **MAMBA, drafts=3, mode="align"),
        case(BESIDE, **MAMBA, drafts=2, mode="all"),
        case(TAILS, **GDN, drafts=2, mode="none", brought=True),
        case(WITHIN, **GDN, drafts=3, mode="align", brought=True),
    )
    broken = {
        **PADDINGS,
        "whoever runs has drafts": (wrap, "verifies", lambda scheduler: bool(scheduler.running)),
        "Mamba2 is not known": (wrap, "kinds_of_states", lambda scheduler: frozenset()),
    }
