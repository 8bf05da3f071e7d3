"""Proof of vllm.padded-one-token-prompt: which tokens the state of a request holds whose prompt is one token.

As a prefill, Mamba2 takes in the padding; as a verification, Gated DeltaNet begins elsewhere. Spared: longer prompts, chunks of
which the last is one token, and one token that is left of a prompt, which is padded as ever.
"""

from typing import Any

from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT, case
from attnfix.patches.lab.vllm.states import PADDINGS, States, arrivals, ends_meet, limit_meets, within_a_block

from . import wrap

#: Beside a request that decodes all the time: one token alone, two in one step, and with a prompt that takes some chunks
ONE = arrivals({3: (1,), 6: (1, 1), 9: (1, 70), 10: (1,)}, beside=(20,))
#: Two tokens and more, and chunks of which the last is one
_LONGER = {at: (range(2, 6), range(2, 70)) for at in (2, 3, 7)} | {5: (31,), 9: (63,)}
LONGER, WITHIN = (arrivals(_LONGER, beside=(20,), fit=fit) for fit in (int, within_a_block))
Launch = dict[str, Any]
NONE, ALIGN, ALL = MODES = Launch(drafts=1, mode="none"), Launch(drafts=3, mode="align"), Launch(drafts=2, mode="all")
MAMBA, GDN = (Launch(model=model, max_tokens=32) for model in (NEMOTRON_H, QWEN3_NEXT))
#: The scheduler a step ahead
AHEAD = Launch(ahead=True, max_tokens=128, context=64)


class Proof(States):
    needs = "Scheduler.schedule: pad_spec_decode"
    absent = "the last token of a prompt is not padded"
    bug = (
        *(case(ONE, **GDN, **mode) for mode in (NONE, ALIGN)),
        *(case(ONE, **MAMBA, **mode) for mode in MODES),
        *(case(ends_meet(), **{**GDN, **mode, **AHEAD}) for mode in (NONE, ALIGN)),
        *(case(ends_meet(), **{**MAMBA, **mode, **AHEAD}) for mode in MODES),
        *(case(limit_meets(1), **{**MAMBA, **mode, **AHEAD}) for mode in (NONE, ALIGN)),
        case(ends_meet(), **{**MAMBA, **ALIGN, **AHEAD}, blocks=24),  # requests are preempted
        # A padded prompt of which one token is left is a verification there; before, it ends a server in this mode
        case(ends_meet(), "Scheduler._request_blocks_can_be_freed", **{**MAMBA, **ALL, **AHEAD}, brought=True),
    )
    spared = (
        *(case(LONGER, **MAMBA, **mode) for mode in MODES),
        case(LONGER, **GDN, **NONE, brought=True),
        case(WITHIN, **GDN, **ALIGN, brought=True),
    )
    broken = {
        **PADDINGS,
        "a request is forgotten before its step": (wrap, "one_may_begin", lambda scheduler: False),
        "whoever runs has drafts": (wrap, "verifies", lambda scheduler: bool(scheduler.running)),
        "no layer has a state": (wrap, "kinds_of_states", lambda scheduler: frozenset()),
    }
