"""What decides sglang.mamba-freed-verify alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON

#: With one that was not read, a grammar may wait for the last result or not
_READ = ("EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP", "NGRAM", "DFLASH", "DSPARK")
#: In 0.5.13.x, only the workers of these run while the last result is not processed
_OVERLAP_FIRST, _ALL_SINCE = ("EAGLE", "EAGLE3", "STANDALONE"), "0.5.14"
#: From here on, all but this one take a grammar into the verification
_WAITS, _GRAMMAR_WITHIN_SINCE = "NGRAM", "0.5.17"
#: With this and attention by data parallelism, a rank waits for its last result while others read prompts
_NO_PREFILL_OVERLAP = "SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP"


def _ends_first(it: Deployment) -> Fact:
    """Whether the scheduler prepares a verification, then processes the last result, then launches the verification."""
    algorithm = COMMON["speculative algorithm"](it)
    if not algorithm.values:
        return algorithm
    name = str(algorithm.values[0])
    if name == "none":
        return known(OFF, f"speculative algorithm: {algorithm}")
    for option, value, default in (("disable-overlap-schedule", ON, OFF), ("disaggregation-mode", "prefill", "null")):
        asked = it.option(option, default)
        if value in asked.values:
            return known(OFF, f"{asked.why} {value}")
    if it.release is None:
        return unknown("the scheduler of this release was not read")
    if not it.since(_ALL_SINCE) and name not in _OVERLAP_FIRST:
        return known(OFF, f"{name} has no overlap in sglang {it.release}")
    if it.truth(_NO_PREFILL_OVERLAP) and it.given("enable-dp-attention"):
        return known(ON, f"{_NO_PREFILL_OVERLAP} with --enable-dp-attention")
    if name not in _READ:
        return unknown(f"speculative algorithm: {algorithm}, which was not read")
    if it.since(_GRAMMAR_WITHIN_SINCE) and name != _WAITS:
        return known(OFF, f"{name} takes a grammar into the verification in sglang {it.release}")
    grammars = it.option("grammar-backend", "xgrammar")
    return Fact(tuple(OFF if value == "none" else ON for value in grammars.values), f"{name}, {grammars.why}")


FACTS: Makers = {"requests end before they are verified": _ends_first}
