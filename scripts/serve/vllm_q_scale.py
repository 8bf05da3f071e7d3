"""Cases `q-scale…` of scripts/serve/gpu_e2e_vllm.py: a Llama with scales of queries, keys and values, on FlashInfer.

Next-token log-probabilities of prompts with nothing cached, and with all but their last token cached, which is a decode;
against Triton's backend, which reads the same FP8 cache.
`kept`: queries keep bfloat16. `mixed`: as Hopper does without a way to NVIDIA's cubins: FP8 prefills, bfloat16 decodes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import e2e, e2e_vllm, tiny_llama
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.e2e_vllm import GRAPHS, OFF
from scripts.serve.sides import Side

FIX = "vllm.flashinfer-q-scale"
#: About the largest query over the largest number that FP8 holds
QUERY = 0.03
PAGE, LENGTHS, SEEDS = 16, (161, 1009, 3201), 5  # one token more than whole pages
REFERENCE, REPLAYED, SAME = "Triton", "patched, graphs", "prefills with stock's bits"
#: How many times as far from the reference stock is where it is wrong
RED = 3
SETTINGS: dict[str, Any] = {
    "max_model_len": 8192, "max_num_batched_tokens": 8192, "enforce_eager": True, "block_size": PAGE, "kv_cache_dtype": "fp8",
    "enable_flashinfer_autotune": False,
}  # fmt: skip


def kept(folder: Path, out: Path, one_by_one: bool = False) -> tuple[dict[str, Any], list[str], list[str]]:
    graphs = {REPLAYED: {"enforce_eager": False, "compilation_config": GRAPHS}}
    return _run(folder, out, one_by_one, {"disable_flashinfer_q_quantization": True}, graphs)


def mixed(folder: Path, out: Path, one_by_one: bool = False) -> tuple[dict[str, Any], list[str], list[str]]:
    """Decodes alone are corrected."""
    return _run(folder, out, one_by_one, {}, {})


def _run(folder: Path, out: Path, one_by_one: bool, attention: dict, more: dict) -> tuple[dict[str, Any], list[str], list[str]]:
    model, draw, on = tiny_llama.make_calibrated(folder, query=QUERY), random.Random(26), {BY_ID[FIX].switch: "1"}
    flashinfer = SETTINGS | {"attention_config": {"backend": "FLASHINFER"} | attention}
    sides = {
        REFERENCE: Side(OFF, SETTINGS | {"attention_config": {"backend": "TRITON_ATTN"}}),
        STOCK: Side(OFF, flashinfer),
        PATCHED: Side(on, flashinfer),
        **{name: Side(on, flashinfer | settings) for name, settings in more.items()},
    }
    prompts = [[draw.randrange(2, tiny_llama.VOCABULARY) for _ in range(n)] for n in LENGTHS for _ in range(SEEDS)]

    def work(server: Server) -> dict[str, Any]:
        ask = lambda prompt: server.ask("answer", prompts=[prompt])["answers"][0]  # noqa: E731
        return {"answers": [{"prefill": ask(prompt), "decode": ask(prompt)} for prompt in prompts]}

    found = e2e_vllm.serving(model, out, one_by_one)(sides, work)
    answers = {name: side.pop("answers") for name, side in found.items()}
    for name, side in found.items():
        side["each"] = [
            {"tokens": len(prompt), "cached tokens": one["decode"]["cached"]}
            | {how: e2e.distance(one[how]["logprobs"], right[how]["logprobs"]) for how in one}
            for prompt, one, right in zip(prompts, answers[name], answers[REFERENCE])
        ]
        pairs = zip(answers[name], answers[STOCK])
        side[SAME] = sum(one["prefill"]["logprobs"] == other["prefill"]["logprobs"] for one, other in pairs)
    scales = {"q": QUERY, **tiny_llama.SCALES}
    result = {"settings": e2e_vllm.SHARED | flashinfer, "scales": scales, "sides": found}
    return result, _table(found), failures(found, mixed=not attention)


def failures(found: dict[str, Any], mixed: bool) -> list[str]:
    """One sentence for each check that does not hold."""
    fixed = [name for name in found if name not in (REFERENCE, STOCK)]
    wrong = e2e_vllm.activity_failures(found, {name: {FIX} for name in fixed})
    for name, side in found.items():
        if any(one["cached tokens"] != one["tokens"] - 1 for one in side["each"]):
            wrong.append(f"{name}: a prompt had more than one token that was not cached")
    for name in fixed:
        for how in ("decode",) if mixed else ("prefill", "decode"):
            stock, patched = (e2e.rms(one[how] for one in found[side]["each"]) for side in (STOCK, name))
            if not stock > RED * patched:
                wrong.append(f"{name}, {how}: {patched:.3g} from {REFERENCE}, stock {stock:.3g}")
        if mixed and (same := found[name][SAME]) < len(found[name]["each"]):
            wrong.append(f"{name}: {same} of {len(found[name]['each'])} prefills have stock's bits")
    return wrong


def _table(found: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<18}{'tokens':>8}{'prefill':>12}{'decode':>12}"]
    for name, side in found.items():
        for n in LENGTHS:
            each = [one for one in side["each"] if one["tokens"] == n]
            figures = (e2e.rms(one[how] for one in each) for how in ("prefill", "decode"))
            lines.append(f"{name:<18}{n:>8}" + "".join(f"{figure:>12.4g}" for figure in figures))
        lines.append(f"  prefills with stock's bits: {side[SAME]} of {len(side['each'])}")
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines
