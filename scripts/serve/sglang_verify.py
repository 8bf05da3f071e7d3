"""Case `verify` of scripts/serve/gpu_e2e_sglang.py: a Gemma 2 on FlashInfer with n-gram speculation, against Triton's backend.

Triton caps the scores, and keeps to the window. How far rounding alone moves an answer is measured: FlashInfer against Triton
without speculation.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_sglang, tiny_gemma
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Side

FIX = "sglang.eagle-swa-verify"
TRITON, PLAIN = "triton", "without speculation"
#: Prompts longer than the window of 512, how many of each length, and new tokens. Greedy decoding goes other ways once two
#: tokens are about as probable
LENGTHS, SEEDS, NEW = (600, 900, 1500, 3000), 4, 32
SETTINGS = e2e_sglang.SHARED | {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536, "cuda_graph_max_bs": 4,
    "max_running_requests": 4, "chunked_prefill_size": 8192,
}  # fmt: skip
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}
#: Prefill is right on all of them
_SIDES = {
    TRITON: Side({"ATTNFIX": "0"}, {"attention_backend": "triton"}),
    PLAIN: Side({BY_ID[FIX].switch: "0"}),
    STOCK: Side({BY_ID[FIX].switch: "0"}, NGRAM),
    PATCHED: Side({BY_ID[FIX].switch: "1"}, NGRAM),
}


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Greedy tokens behind prompts longer than the window, with n-gram speculation and without; all sides at once."""
    model, draw = tiny_gemma.make(folder, repeats=False), random.Random(32)
    prompts = [[draw.randrange(2, tiny_gemma.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]
    ask = lambda server: {"tokens": [_tokens(server, prompt) for prompt in prompts]}  # noqa: E731
    sides = e2e_sglang.serving(model, out, SETTINGS)(_SIDES, ask)
    tokens = {name: side.pop("tokens") for name, side in sides.items()}
    for name, side in sides.items():
        side["equal tokens"] = [_equal(*both) for both in zip(tokens[name], tokens[TRITON])]
    lines = []
    for name, one in sides.items():
        lines.append(f"{name:<22}{statistics.fmean(one['equal tokens']):>6.1f} of {NEW} tokens as Triton's")
        lines += [f"  {line}" for line in e2e.activity(one["processes"])]
    return {"settings": SETTINGS | NGRAM, "new": NEW, "sides": sides}, lines, failures(sides)


def _tokens(server: Server, prompt: list[int]) -> list[int]:
    return server.ask("round", before=[[5] * 8], prompts=[prompt], singles=[], new_tokens=NEW)["tokens"][0]


def _equal(some: list[int], others: list[int]) -> int:
    """How many tokens are equal before the first that is not."""
    return ([x == y for x, y in zip(some, others)] + [False]).index(False)


def failures(sides: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold. Stock's first token comes from prefill, and is right."""
    plain, stock, patched = (statistics.fmean(sides[name]["equal tokens"]) for name in (PLAIN, STOCK, PATCHED))
    wrong = []
    if not stock < 0.5 * plain:
        wrong.append(f"stock: {stock:.1f} tokens as Triton's, without speculation {plain:.1f}")
    if not patched > 0.8 * plain:
        wrong.append(f"patched: {patched:.1f} tokens as Triton's, without speculation {plain:.1f}")
    if not e2e.corrections(sides[PATCHED]["processes"], FIX):
        wrong.append(f"patched: {FIX} corrected nothing")
    return wrong
