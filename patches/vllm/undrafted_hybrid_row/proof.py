"""Proof of vllm.undrafted-hybrid-row: decodes without drafts behind accepted ones: beside verifications, alone, beside prompts.

Spared: steps in which each decode has drafts, decodes without drafts behind none that was accepted, and ends of prompts. In
0.11.1-0.12.0 and 0.17, servers that never have verifications beside rows of other kinds, stock or corrected.
"""

from attnfix.patches.lab.vllm.drafted_rows import NEMOTRON_H, QWEN3_NEXT, DraftedRows, case
from attnfix.patches.lab.vllm.gated_delta import step, verify

from . import wrap

_BACKENDS = "vllm.v1.attention.backends"
#: Up to 0.18.1, Mamba2 ends a server in steps in which nobody has drafts, and mode "align" takes none at first
STATES = f"{_BACKENDS}.utils:split_decodes_and_prefills: treat_short_extends_as_decodes"
_GDN = f"{_BACKENDS}.gdn_attn:GDNAttentionMetadataBuilder.build"
#: Where Gated DeltaNet takes verifications beside other rows: up to 0.12.0 it mixes up their tokens, 0.17 ends; then 0.18.0
BOTH = (
    f"no {_GDN}: pad_for_cudagraph or {_GDN}: num_zero_len",
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner.profile_cudagraph_memory",
)
NONE, ALL = verify(0), verify()


def alone(model, drafts):
    """Without drafts behind accepted ones: `b`, all, all beside the last token of a prompt. A prompt comes behind none."""
    kept = verify(kept=1 + drafts)
    steps = (
        step(a=9, b=20), step(a=kept, b=kept), step(a=kept, b=NONE), step(a=kept, b=kept), step(a=NONE, b=NONE),
        step(a=NONE, b=NONE, c=11), step(a=kept, b=kept), step(a=NONE, b=NONE, c=1), step(a=kept, b=verify(kept=2), c=kept),
        step(a=NONE, b=kept, c=NONE), step(a=NONE, b=NONE, c=NONE), step(c=kept), step(c=NONE),
    )  # fmt: skip
    return case(model, *steps, drafts=drafts)


def served(model, drafts, prompt=30, **more):
    """`b` has no drafts, then nobody has, once beside a prompt; each time behind accepted ones, and again behind none."""
    kept = verify(kept=1 + drafts)
    steps = (
        step(a=9, b=20), step(a=kept, b=kept), step(a=kept, b=NONE), step(a=kept, b=kept), step(a=NONE, b=NONE),
        step(a=kept, b=NONE), step(a=NONE, b=NONE, c=prompt), step(a=verify(1, 2), b=kept, c=kept),
        step(a=NONE, b=NONE, c=NONE), step(c=NONE), step(c=kept), step(c=NONE),
    )  # fmt: skip
    return case(model, *steps, drafts=drafts, **more)


def spared(model, drafts, **more):
    """Without drafts behind one that was refused; a prompt whose last token alone is left."""
    steps = (
        step(a=9, b=20),
        step(a=NONE, b=ALL),
        step(a=verify(kept=1), b=ALL, c=12),
        step(a=NONE, b=ALL, c=1),
        step(b=ALL, c=ALL),
    )
    return case(model, *steps, step(d=5), drafts=drafts, **more)


def apart(model, drafts):
    """No drafts behind ones that were refused; a prompt beside it, and its last token."""
    refused = verify(kept=1)
    steps = (
        step(a=9, b=20), step(a=NONE, b=NONE), step(a=refused, b=refused), step(a=NONE, b=NONE, c=11),
        step(a=NONE, b=NONE, c=1), step(a=ALL, b=ALL, c=ALL), step(d=5),
    )  # fmt: skip
    return case(model, *steps, drafts=drafts)


def _first(real, runner, new, some_have_drafts):
    rows = real(runner, new, some_have_drafts)
    return rows & (rows.cumsum() == 1)


class Proof(DraftedRows):
    modules = (*DraftedRows.modules, f"{_BACKENDS}.utils", f"{_BACKENDS}.gdn_attn")
    bug = (
        alone(QWEN3_NEXT, 1),
        alone(QWEN3_NEXT, 3),
        *(served(QWEN3_NEXT, 1, where=where) for where in BOTH),
        *(served(QWEN3_NEXT, 3, prompt=2, where=where) for where in BOTH),
        served(QWEN3_NEXT, 2, mode="align", where=STATES),
        served(NEMOTRON_H, 3, where=STATES),
        served(NEMOTRON_H, 2, mode="align", where=STATES),
    )
    spared = (
        apart(QWEN3_NEXT, 2),
        *(spared(QWEN3_NEXT, 3, where=where) for where in BOTH),
        spared(QWEN3_NEXT, 1, mode="align", where=STATES),
        spared(NEMOTRON_H, 2, where=STATES),
    )
    broken = {
        "no row is a verification": (wrap.undrafted, lambda real, runner, new, some: real(runner, new, some) & False),
        "the first row alone is one": (wrap.undrafted, _first),
        "a row has 0 drafts": (wrap, "DRAFTS", 0),
        "steps without any drafts are left": (
            wrap.can_verify,
            lambda real, runner, new, rows, some: some and real(runner, new, rows, some),
        ),
    }
