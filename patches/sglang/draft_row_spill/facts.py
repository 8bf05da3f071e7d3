"""What decides sglang.draft-row-spill alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import EAGLE, GEMMA, MLA_SINCE, PLAIN
from attnfix.compat.doctor.sglang import FACTS as COMMON

from .wrap import ENDS, NEARER

#: First release in which rows of pages of several slots are wide enough for every algorithm
_PAGED_SINCE = "0.5.16"
#: Algorithms whose drafts are a block, and the option of its size
_BLOCKS = {"DFLASH": "speculative-dflash-block-size", "DSPARK": "speculative-dspark-block-size"}
#: First releases in which algorithms take the slots of two steps ahead
_AHEAD_SINCE = {"NGRAM": "0.5.14", "DFLASH": "0.5.14", "DSPARK": "0.5.16", "FROZEN_KV_MTP": "0.5.14"}
#: From 0.5.6 on EAGLE takes them, too, but rows of releases before this one are not judged
_READ_FROM = "0.5.13"
#: Releases whose allocator has pages of all context-parallel ranks, and whose rows reckon with one rank's
_RANKS_SINCE, _RANKS_UP_TO = "0.5.16", "0.5.19"
#: Backends that choose pages of several slots, whatever size of 1 is named, and those that leave the size alone
_PAGES = frozenset({"flashmla", "cutlass_mla", "trtllm_mla", "trtllm_mha", "tokenspeed_mla", "cutedsl_mla"})
_ONE_SLOT = frozenset({"triton", "flashinfer", "fa3", "torch_native", "flex_attention"})


def _rows(it: Deployment) -> Fact:
    """Whether two decode steps of a request fit behind the context length in its row."""
    algorithm = str(next(iter(COMMON["speculative algorithm"](it).values), "EAGLE"))
    first = _AHEAD_SINCE.get(algorithm, _READ_FROM)
    if it.release is None or (not it.since(first) and first == _READ_FROM):
        return unknown(f"rows of {algorithm} in this release are not judged")
    if not it.since(first):
        return known("wide enough", f"{algorithm} takes the slots of one step before {first}")
    if it.option("disaggregation-mode", "null").values == ("prefill",):
        return known("wide enough", "--disaggregation-mode prefill: no decode step runs")
    if (unified := it.option("enable-unified-memory", OFF)).values != (OFF,):
        return unknown(f"{unified.why}: its rows, which have a width of their own, were not read")
    ranks = it.number("dcp-size", 1)
    if not ranks.values or (ranks.values != (1,) and it.since(_RANKS_SINCE) and not it.since(_RANKS_UP_TO)):
        return unknown(f"what {ranks.why} of sglang {it.release} does to rows was not read")
    pages = known(ON, "--dcp-size above 1") if ranks.values != (1,) and it.since(_RANKS_UP_TO) else _pages(it)
    if pages.values == (ON,) and it.since(_PAGED_SINCE):
        return known("wide enough", f"sglang {it.release} with pages of several slots")
    sizes = _sizes(it, algorithm)
    if missing := [f"--speculative-{name}" for name, fact in sizes.items() if not fact.values]:
        return unknown(f"name {', '.join(missing)}: the engine chooses them")
    steps, topk, drafts = (int(fact.values[0]) for fact in sizes.values())
    if min(steps, topk, drafts) < 1:
        return unknown("steps, branches and draft tokens are to be 1 or more")
    if pages.values == (ON,) and topk > 1:
        return known("wide enough", f"trees of drafts with pages of several slots ({pages.why})")
    behind, ahead = 4 + drafts, 2 * max(steps * topk, drafts)
    why = f"{behind} slots behind the context length, {ahead} given to a request near it"
    if ahead - ENDS > behind:
        return known("too short", why) if pages.values else pages
    if not it.absent("speculative-adaptive"):
        return unknown("--speculative-adaptive may raise the number of drafts")
    if ahead - ENDS + NEARER > behind:
        return unknown(f"{why}: short by one, and for some requests alone")
    return known("wide enough", why)


def _sizes(it: Deployment, algorithm: str) -> dict[str, Fact]:
    """The numbers of steps, of branches and of draft tokens, by the ends of their options."""
    drafts = it.number("speculative-num-draft-tokens", 12 if algorithm == "NGRAM" else None)
    topk, steps = it.number("speculative-eagle-topk"), it.number("speculative-num-steps")
    if algorithm in _BLOCKS:
        block = it.number(_BLOCKS[algorithm])
        more = int(algorithm == "DSPARK")  # its block is that of the drafts alone
        drafts = Fact(tuple(int(value) + more for value in block.values), block.why) if block.values else drafts
        topk = steps = known(1, "one block of drafts")
    if algorithm == "NGRAM":
        topk = it.number("speculative-ngram-max-bfs-breadth", 10)
        if it.absent("speculative-num-steps") and drafts.values and topk.values and int(topk.values[0]) > 0:
            steps = known(max(1, int(drafts.values[0]) // int(topk.values[0])), "draft tokens by branches")
    if algorithm in EAGLE and topk.values == (1,) and steps.values:
        drafts = known(int(steps.values[0]) + 1, "steps and one, whatever is named")
    return {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": drafts}


def _pages(it: Deployment) -> Fact:
    """Whether a page has several slots: as named, else as a backend or a model chooses."""
    size = it.number("page-size", 1)
    if size.values != (1,):
        return Fact(tuple(ON for _ in size.values), size.why)
    backends = [COMMON[f"{phase} backend"](it) for phase in ("decode", "prefill")]
    if backends[0].values and _PAGES.issuperset(backends[0].values):
        return known(ON, str(backends[0]))
    named = ("attention-backend", "speculative-draft-attention-backend")
    backends += [it.option(name) for name in named if not it.absent(name)]
    read = it.architecture() in {*PLAIN, *GEMMA, *MLA_SINCE}
    if read and all(fact.values and _ONE_SLOT.issuperset(fact.values) for fact in backends):
        return known(OFF, size.why)
    return unknown("whether the backend or the model chooses pages of several slots was not read; name --page-size")


FACTS: Makers = {"rows of slots": _rows}
