"""Proof of vllm.mamba2-short-chunk: prompts, and their last chunks, that are as short as a verification or shorter.

They stand beside verifications, before and behind them, and beside longer prompts; with full graphs, too. Spared: longer ones.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.drafted_rows import NEMOTRON_H, DraftedRows, case
from attnfix.patches.lab.vllm.gated_delta import step, verify

from . import wrap

_MAMBA, _UTILS = "vllm.v1.attention.backends.mamba_attn", "vllm.v1.attention.backends.utils"
ALL, REFUSED = verify(), verify(kept=1)
#: Later releases replay a full graph for such a prompt as well, which is another bug
GRAPHS: Any = {"graphs": True, "where": f"no {_UTILS}:split_decodes_and_prefills: treat_short_extends_as_decodes"}


def served(short: int, drafts: int, **more: Any) -> Any:
    """Two requests verify drafts: beside a prompt, the rest of one that stands before one of them, a rest and a longer prompt,
    and two rests that go on."""
    kept = verify(kept=1 + drafts)
    steps = (
        step(a=9), step(a=kept, b=short), step(a=kept, b=kept, c=17), step(a=ALL, b=kept, c=short, d=11),
        step(a=kept, b=ALL, c=kept, d=short), step(a=ALL, b=REFUSED, c=kept, d=ALL),
        step(a=kept, b=ALL, c=ALL, d=kept),
    )  # fmt: skip
    return case(NEMOTRON_H, *steps, drafts=drafts, **more)


class Proof(DraftedRows):
    modules = (*DraftedRows.modules, _MAMBA, _UTILS)
    may_lack = (_MAMBA,)
    needs = f"{_MAMBA}:BaseMambaAttentionMetadataBuilder.__init__: use_spec_decode"
    absent = "layers of Mamba2 verify no drafts"
    bug = (
        served(2, 3), served(4, 3), served(2, 1), served(3, 2, mode="align"), served(4, 3, **GRAPHS),
        served(2, 1, **GRAPHS),
        case(NEMOTRON_H, step(a=9), step(a=ALL, b=1), step(a=ALL, b=ALL), drafts=2),
        # A prompt whose rest stands before two verifications
        case(
            NEMOTRON_H, step(a=17, b=9, c=5), step(a=3, b=ALL, c=ALL), step(a=ALL, b=ALL, c=REFUSED), step(c=ALL, a=ALL),
            drafts=3,
        ),
    )  # fmt: skip
    spared = (
        served(5, 3), served(7, 1, graphs=True), served(9, 2, mode="align"),
        case(NEMOTRON_H, step(a=9, b=2), step(a=ALL, b=ALL), step(a=ALL, b=REFUSED, c=12), step(a=ALL, c=ALL), drafts=3),
    )  # fmt: skip
    broken = {
        "no row is moved": (wrap.verifications_first, lambda real, batch, step: list(batch.req_ids)),
        "prompts stand first": (wrap.verifications_first, lambda real, batch, step: real(batch, step)[::-1]),
        "a full graph is replayed": (wrap, "has_a_prompt", lambda batch, scheduled: False),
        "the first prompt is a verification": (wrap.split_at, lambda real, count, batch: real(count + 1, batch)),
        "the last verification is a prompt": (wrap.split_at, lambda real, count, batch: real(max(count - 1, 0), batch)),
    }
