"""What decides sglang.draft-row-spill alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON

#: First release in which rows of pages of several slots are wide enough for every algorithm
_PAGED_SINCE = "0.5.16"
#: In releases before this one EAGLE's next step may be prepared before the last one gives back the slot that it claimed
_CLAIMS_BEFORE = "0.5.15"
#: First releases in which algorithms take the slots of two steps ahead; EAGLE's kinds do in every release with the function
_AHEAD_SINCE = {"DFLASH": "0.5.14", "NGRAM": "0.5.15"}
#: Backends that choose pages of several slots where no size is named
_PAGES = frozenset({"flashmla", "cutlass_mla", "trtllm_mla", "trtllm_mha", "tokenspeed_mla", "cutedsl_mla"})


def _rows(it: Deployment) -> Fact:
    """Whether two decode steps of a request fit behind the context length in its row."""
    algorithm = str(next(iter(COMMON["speculative algorithm"](it).values), "EAGLE"))
    if not it.since(first := _AHEAD_SINCE.get(algorithm, "0.5.13")):
        return unknown(f"slots that {algorithm} takes ahead were not read before {first}")
    pages = _pages(it)
    if pages.values == (ON,) and it.since(_PAGED_SINCE):
        return known("wide enough", f"sglang {it.release} with pages of several slots")
    sizes = _sizes(it, algorithm)
    if missing := [f"--speculative-{name}" for name, fact in sizes.items() if not fact.values]:
        return unknown(f"name {', '.join(missing)}: the engine chooses them")
    steps, topk, drafts = (int(fact.values[0]) for fact in sizes.values())
    if pages.values == (ON,) and topk > 1:
        return known("wide enough", f"trees of drafts with pages of several slots ({pages.why})")
    claims = algorithm != "DFLASH" and not it.since(_CLAIMS_BEFORE) and not it.given("disable-overlap-schedule")
    behind, ahead, ends = 4 + drafts, 2 * max(steps * topk, drafts), 3 if claims else 4
    if ahead - ends > behind and not pages.values:
        return pages
    why = f"{behind} slots behind the context length, {ahead} given to a request near it"
    return known("too short" if ahead - ends > behind else "wide enough", why)


def _sizes(it: Deployment, algorithm: str) -> dict[str, Fact]:
    """The numbers of steps, of branches and of draft tokens, by the ends of their options."""
    drafts = it.number("speculative-num-draft-tokens", 12 if algorithm == "NGRAM" else None)
    topk, steps = it.number("speculative-eagle-topk"), it.number("speculative-num-steps")
    if algorithm == "DFLASH":
        topk = steps = known(1, "one block of drafts")
    if algorithm == "NGRAM":
        topk = it.number("speculative-ngram-max-bfs-breadth", 10)
        if it.absent("speculative-num-steps") and drafts.values and topk.values:
            steps = known(int(drafts.values[0]) // int(topk.values[0]), "draft tokens by branches")
    return {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": drafts}


def _pages(it: Deployment) -> Fact:
    """Whether a page has several slots: as named, else as a backend chooses."""
    if not it.absent("page-size"):
        size = it.number("page-size")
        return Fact(tuple(OFF if value == 1 else ON for value in size.values), size.why)
    backends = [COMMON[f"{phase} backend"](it) for phase in ("prefill", "decode")]
    if chosen := next((fact for fact in backends if fact.values and _PAGES.issuperset(fact.values)), None):
        return known(ON, f"{chosen.values[0]}, {chosen.why}")
    if any(_PAGES.intersection(fact.values) for fact in backends):
        return unknown("a backend may choose pages of several slots; name --page-size")
    return known(OFF, "no --page-size")


FACTS: Makers = {"rows of slots": _rows}
