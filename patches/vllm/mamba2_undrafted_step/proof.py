"""Proof of vllm.mamba2-undrafted-step: decodes of which none has drafts, behind refused and accepted ones, and beside prompts.

Spared: steps in which somebody has drafts, and prompts alone. From 0.19.0, cases behind accepted drafts are another bug.
"""

from attnfix.patches.lab.vllm.drafted_rows import NEMOTRON_H, DraftedRows, case
from attnfix.patches.lab.vllm.gated_delta import step, verify

from . import wrap

_MAMBA, _UTILS = "vllm.v1.attention.backends.mamba_attn", "vllm.v1.attention.backends.utils"
NONE, ALL, REFUSED = verify(0), verify(), verify(kept=1)
#: 0.17 and 0.18: the only releases whose builder wants what it is not told
WANTS = f"no {_UTILS}:split_decodes_and_prefills: treat_short_extends_as_decodes"


def plain(drafts, **more):
    """Nobody has drafts at first, behind refused ones, beside a prompt, and beside the last token of one."""
    steps = (
        step(a=9, b=20), step(a=NONE, b=NONE), step(a=REFUSED, b=REFUSED), step(a=NONE, b=NONE, c=19),
        step(a=NONE, b=NONE, c=1), step(a=ALL, b=ALL, c=ALL),
    )  # fmt: skip
    return case(NEMOTRON_H, *steps, drafts=drafts, **more)


def kept(drafts, **more):
    """The same behind accepted drafts; and a prompt as short as a verification."""
    accepted = verify(kept=1 + drafts)
    steps = (
        step(a=9, b=20), step(a=accepted, b=accepted), step(a=NONE, b=NONE), step(a=accepted, b=NONE),
        step(a=NONE, b=NONE, c=1 + drafts), step(a=accepted, b=accepted, c=verify(kept=2)), step(a=NONE, b=NONE, c=NONE),
        step(a=NONE, b=NONE, c=NONE),
    )  # fmt: skip
    return case(NEMOTRON_H, *steps, drafts=drafts, where=WANTS, **more)


class Proof(DraftedRows):
    modules = (*DraftedRows.modules, _MAMBA, _UTILS)
    may_lack = (_MAMBA,)
    needs = f"{_MAMBA}:BaseMambaAttentionMetadataBuilder.__init__: use_spec_decode"
    absent = "layers of Mamba2 verify no drafts"
    bug = (plain(3), plain(1), plain(2, mode="align"), kept(3), kept(1), kept(2, mode="align"))
    spared = (
        case(NEMOTRON_H, step(a=9, b=20), step(a=ALL, b=ALL), step(a=ALL, b=REFUSED, c=12), step(a=ALL, b=NONE), drafts=3),
        case(NEMOTRON_H, step(a=9), step(b=5, c=30), step(a=ALL, b=ALL, c=ALL), drafts=2),
    )
    broken = {
        "short prefills are verifications": (wrap.threshold, lambda real: 4),
        "no row is a verification": (wrap.threshold, lambda real: 0),
    }
