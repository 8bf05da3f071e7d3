"""Case `fp8-prefix` of scripts/serve/gpu_e2e_sglang.py: a Llama whose FP8 KV cache is calibrated, on FlashInfer.

Next-token log-probabilities, with nothing cached and with half of the prompt, against those of the same weights with a cache of
16 bits: stock, patched, and stock in the engine's paged-only mode, which reads the same FP8 cache with its scales.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from scripts.serve import e2e, e2e_sglang, tiny_llama
from scripts.serve.e2e import PATCHED, STOCK
from scripts.serve.sides import Side, cold_and_cached

FIX = "sglang.flashinfer-fp8-prefix"
LENGTHS, SEEDS = (200, 1000, 4000), 5
#: How much further from the answers of a 16-bit cache than paged-only mode's, which reads more of the prompt in FP8
FURTHER = 1.2
RED = 5
SETTINGS = e2e_sglang.SHARED | {"context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 65536}
FP8 = {"kv_cache_dtype": "fp8_e4m3"}
PAGED, EXACT = "stock, paged", "16-bit cache"
_SIDES = {
    STOCK: Side({"ATTNFIX": "0"}, FP8),
    PAGED: Side({"ATTNFIX": "0", "SGLANG_FLASHINFER_USE_PAGED": "1"}, FP8),
    PATCHED: Side({}, FP8),
    EXACT: Side({"ATTNFIX": "0"}, {"kv_cache_dtype": "bf16"}),
}


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """All sides at once."""
    model, draw = tiny_llama.make_calibrated(folder), random.Random(25)
    prompts = [[draw.randrange(2, tiny_llama.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]
    found = e2e_sglang.serving(model, out, SETTINGS)(_SIDES, cold_and_cached(prompts))
    answers = {name: side.pop("answers") for name, side in found.items()}
    exact = [answer["cold"]["logprobs"] for answer in answers[EXACT]]
    for name, side in found.items():
        side["each"] = [
            {"tokens": len(prompt), "cached tokens": answer["cached"]["cached"]}
            | {how: e2e.distance(answer[how]["logprobs"], right) for how in answer}
            for prompt, answer, right in zip(prompts, answers[name], exact)
        ]
        side["same as stock"] = sum(e2e.same_bits(answers[name], answers[STOCK]))
    return {"settings": SETTINGS, "scales": tiny_llama.SCALES, "sides": found}, _table(found), failures(found)


def failures(found: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    stock, paged, patched = (e2e.rms(one["cached"] for one in found[name]["each"]) for name in (STOCK, PAGED, PATCHED))
    wrong = [
        f"{name}: half of {one['tokens']} tokens was not cached"
        for name, side in found.items()
        for one in side["each"]
        if one["cached tokens"] < one["tokens"] // 2 - 1
    ]
    if not stock > RED * paged:
        wrong.append(f"stock: {stock / paged:.2f} times as far from a 16-bit cache as in paged-only mode")
    if not patched <= FURTHER * paged:
        wrong.append(f"patched: {patched / paged:.2f} times as far from a 16-bit cache as in paged-only mode")
    if found[PATCHED]["same as stock"] < len(LENGTHS) * SEEDS:
        wrong.append("patched: prompts with nothing cached have other bits than stock")
    if not e2e.corrections(found[PATCHED]["processes"], FIX):
        wrong.append(f"patched: {FIX} corrected nothing")
    return wrong


def _table(found: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<16}{'tokens':>8}{'cold':>12}{'half cached':>14}"]
    for name, side in found.items():
        for n in LENGTHS:
            each = [one for one in side["each"] if one["tokens"] == n]
            figures = (e2e.rms(one[how] for one in each) for how in ("cold", "cached"))
            lines.append(f"{name:<16}{n:>8}" + "".join(f"{figure:>13.4f}" for figure in figures))
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines
