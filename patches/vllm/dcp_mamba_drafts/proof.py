"""Proof of vllm.dcp-mamba-drafts: verifications under decode context parallelism, some of whose drafts are refused.

They stand alone, and beside prompts and rests of prompts; with full graphs, too. Spared: servers without DCP, and a
model with Gated DeltaNet.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.drafted_rows import NEMOTRON_H, QWEN3_NEXT, DraftedRows, case
from attnfix.patches.lab.vllm.gated_delta import step, verify

from . import wrap

_MAMBA, _UTILS = "vllm.v1.attention.backends.mamba_attn", "vllm.v1.attention.backends.utils"
#: With heads for four ranks
GDN = QWEN3_NEXT | {"linear_num_key_heads": 4, "linear_num_value_heads": 4}
ALL, REFUSED = verify(), verify(kept=1)


def served(drafts: int, **more: Any) -> Any:
    kept = verify(kept=1 + drafts)
    steps = (
        step(a=9, b=20), step(a=REFUSED, b=kept), step(a=kept, b=ALL, c=17), step(a=REFUSED, b=kept, c=2),
        step(a=ALL, b=REFUSED, c=kept), step(a=kept, b=ALL, c=ALL),
    )  # fmt: skip
    return case(NEMOTRON_H, *steps, drafts=drafts, **more)


class Proof(DraftedRows):
    modules = (*DraftedRows.modules, _MAMBA, _UTILS)
    may_lack = (_MAMBA,)
    needs = f"{_UTILS}:split_decodes_and_prefills: treat_short_extends_as_decodes"
    absent = "layers of Mamba2 take each row that is short for a verification, prompts, too"
    bug = (served(3, dcp=2), served(1, dcp=2), served(2, dcp=2, mode="align"), served(3, dcp=2, graphs=True))
    spared = (
        served(3), served(2, mode="align"), served(3, graphs=True),
        case(GDN, step(a=9, b=20), step(a=ALL, b=ALL), step(a=REFUSED, b=ALL), step(a=ALL, b=ALL), drafts=3, dcp=2),
    )  # fmt: skip
    broken = {"rows of one token alone are decodes": (wrap, "takes_several_tokens", lambda: False)}
