"""What decides sglang.draft-row-spill alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

#: First release in which rows of pages of several slots are wide enough
_PAGED_SINCE = "0.5.16"


def _rows(it: Deployment) -> Fact:
    """Whether two decode steps of a request fit behind the context length in its row."""
    sizes = {name: it.number(f"speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")}
    if missing := [name for name, fact in sizes.items() if not fact.values]:
        return unknown(f"name {', '.join(f'--speculative-{name}' for name in missing)}: the engine chooses them")
    steps, topk, drafts = (int(fact.values[0]) for fact in sizes.values())
    page = it.number("page-size", 1)
    if page.values != (1,):
        if it.release and it.since(_PAGED_SINCE):
            return known("wide enough", f"sglang {it.release} with pages of several slots")
        return unknown(f"rows of pages of several slots were not read before {_PAGED_SINCE}")
    behind, ahead = 4 + drafts, 2 * max(steps * topk, drafts)
    why = f"{behind} slots behind the context length, {ahead} given to a request near it"
    return known("too short" if ahead - 4 > behind else "wide enough", why)


FACTS: Makers = {"rows of slots": _rows}
