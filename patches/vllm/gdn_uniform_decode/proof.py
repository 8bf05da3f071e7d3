"""Proof of vllm.gdn-uniform-decode: prompts as long as a verification, alone and beside a decode, and the steps behind them.

Spared: prompts of other lengths: alone, beside a decode, and in two parts; each with decodes through the graph behind it.
"""

from dataclasses import replace

from attnfix.patches.lab.vllm.gated_delta import BUILDER, RUNNER, GatedDelta, case, step, verify

from . import wrap


def served(drafts, alone, beside, rest):
    """A prompt of `alone` tokens; one of `beside` tokens, beside a decode; and the `rest` of a longer one."""
    return case(
        step(a=alone), step(a=verify(), b=beside), step(a=verify(), b=verify()), step(c=2 * drafts), step(c=rest),
        step(a=verify(), c=verify()), drafts=drafts, graphs=True,
    )  # fmt: skip


def _alone(real, input_batch, scheduled):
    return len(scheduled) == 1 and real(input_batch, scheduled)


def _fresh(real, input_batch, scheduled):
    return bool((input_batch.num_computed_tokens_cpu[: len(scheduled)] == 0).any())


class Proof(GatedDelta):
    modules = (RUNNER, BUILDER)
    may_lack = (BUILDER,)
    needs = "GPUModelRunner._determine_batch_execution_and_padding"
    absent = "the runner chooses a graph in another way"
    bug = tuple(served(drafts, drafts + 1, drafts + 1, drafts + 1) for drafts in (2, 3))
    spared = tuple(served(drafts, drafts + 2, drafts, drafts + 2) for drafts in (2, 3))
    around = {"`--compilation-config.cudagraph_mode PIECEWISE`": {"bug": tuple(replace(case, graphs=False) for case in bug)}}
    broken = {
        "no batch is a prefill": (wrap, "prefills", lambda input_batch, scheduled: False),
        "a prefill beside a decode is missed": (wrap.prefills, _alone),
        "the rest of a prompt is missed": (wrap.prefills, _fresh),
    }
