"""Case `draft-lengths` of scripts/serve/gpu_e2e_sglang.py: how many drafts of a DeepSeek-V2 are accepted, on three backends.

The model is its own draft model, so nearly every draft is what the target then says: what is lost is rounding, and what the
drafts do not see. FlashAttention 3 has no such bug, and says how many drafts rounding costs.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, tiny_deepseek
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Side

FIX = "sglang.mla-draft-lengths"
RIGHT, DRAFTS, NEW, AT_ONCE, ROUNDS = "fa3", 6, 48, 4, 8
#: Tokens of a prompt: the fewer there are, the more the newest ones count
SHORT, LONG = (6, 12, 24, 40), (200, 300, 400, 500)
#: Accepted tokens of a step, of fa3's: what stock may have at most, and patched must have
RED, RIGHT_FROM = 0.9, 0.97
SETTINGS: dict[str, Any] = e2e_sglang.SHARED | {
    "mem_fraction_static": 0.9, "max_total_tokens": 16384, "context_length": 2048, "cuda_graph_max_bs": AT_ONCE,
    "max_running_requests": AT_ONCE, "disable_radix_cache": True, "speculative_algorithm": "STANDALONE",
    "speculative_num_steps": DRAFTS - 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": DRAFTS,
}  # fmt: skip
#: What is asked of stock and patched alike
KINDS: dict[str, dict[str, Any]] = {
    "flashinfer": {},
    "flashinfer, no graphs": {"disable_cuda_graph": True},
    "flashmla": {"attention_backend": "flashmla", "page_size": 64},
}


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Greedy answers, AT_ONCE requests in a batch; all servers at once."""
    model = tiny_deepseek.make(folder)
    settings = SETTINGS | {"speculative_draft_model_path": str(model)}
    on, off = {BY_ID[FIX].switch: "1"}, {"ATTNFIX": "0"}
    sides = {RIGHT: Side(off, {"attention_backend": "fa3"})}
    for kind, more in KINDS.items():
        sides |= {f"{STOCK}, {kind}": Side(off, more, may_fail=True), f"{PATCHED}, {kind}": Side(on, more, may_fail=True)}
    found = e2e_sglang.serving(model, out, settings)(sides, _accepted)
    return {"settings": SETTINGS, "drafts": DRAFTS, "new": NEW, "sides": found}, table(found), failures(found)


def _accepted(server: Server) -> dict[str, Any]:
    """{"short", "long": accepted tokens of a step of each request, the target's own among them}"""
    draw = random.Random(36)
    found: dict[str, list[float]] = {"short": [], "long": []}
    for what, lengths in (("short", SHORT), ("long", LONG)):
        for _ in range(ROUNDS):
            prompts = [[draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(count)] for count in lengths]
            found[what] += server.ask("accepted", prompts=prompts, new_tokens=NEW)["accepted"]
    return {"accepted": found}


def _mean(side: dict[str, Any], what: str) -> float:
    return statistics.fmean(side["accepted"][what])


def table(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, side in found.items():
        if "ended" in side:
            lines.append(f"{name:<32}{side['said'] or side['ended']}")
            continue
        told = ", ".join(f"{what} prompts {_mean(side, what):.2f}" for what in side["accepted"])
        lines += [f"{name:<32}{told}, of {DRAFTS}", *(f"  {line}" for line in e2e.activity(side["processes"]))]
    return lines


def failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Behind short prompts stock must lose drafts; no prompt may cost patched
    more than rounding does."""
    wrong = []
    for kind in KINDS:
        stock, patched = (found[f"{side}, {kind}"] for side in (STOCK, PATCHED))
        ended = [f"{kind}: {side['ended']}, {side['said']}" for side in (stock, patched) if "ended" in side]
        if ended:
            wrong += ended
            continue
        right = {what: _mean(found[RIGHT], what) for what in ("short", "long")}
        if not _mean(stock, "short") < RED * right["short"]:
            wrong.append(f"stock, {kind}: {_mean(stock, 'short'):.2f} accepted, fa3 {right['short']:.2f}")
        wrong += [
            f"patched, {kind}, {what} prompts: {_mean(patched, what):.2f} accepted, fa3 {right[what]:.2f}"
            for what in right
            if not _mean(patched, what) >= RIGHT_FROM * right[what]
        ]
        if not e2e.corrections(patched["processes"], FIX):
            wrong.append(f"patched, {kind}: {FIX} corrected nothing")
    return wrong
