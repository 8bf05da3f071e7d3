"""A model of each kind, with any release: does it start, is it patched as the ledgers say, and does it answer as stock does?

Prompts are answered cold, with their first half cached, and all at once. Neither may move an answer by more than a server's own
rounding; patched holds to that, or is no further than stock. Where no fix corrected, patched answers as stock does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.serving import answers, cases, models, processes
from tests.gpu.serving.cases import OFF, PATCHED, STOCK, Case, Found, Side, record
from tests.gpu.serving.conversations import Conversation, tokens
from tests.gpu.serving.processes import Server

#: Lengths of prompts, in tokens: below Gemma's window of 512, above it, and, with PIECE, in two steps
LENGTHS, PIECE = (100, 700, 1500, 3000), 2048
#: Differences of two log-probabilities that rounding makes: a batch of another shape, or experts that are chosen otherwise
ROUNDING = {"mla": 0.1, "dense": 0.1, "windows": 0.15, "hybrid": 0.5}
VLLM = {"max_model_len": 8192, "max_num_batched_tokens": PIECE, "enforce_eager": True}
SGLANG: dict[str, Any] = {
    "context_length": 8192, "mem_fraction_static": 0.9, "max_total_tokens": 32768, "chunked_prefill_size": PIECE,
    "cuda_graph_max_bs": 4, "max_running_requests": 8,
}  # fmt: skip
_TRITON = SGLANG | {"attention_backend": "triton"}
#: States are kept at the least distance, and there are enough of them for all that is asked
_STATES = {
    "max_mamba_cache_size": 200, "mamba_scheduler_strategy": "extra_buffer", "mamba_track_interval": models.CHUNK,
}  # fmt: skip
#: {engine: {kind: (family, settings)}}
KINDS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "vllm": {
        "mla": ("deepseek", VLLM), "dense": ("llama", VLLM), "windows": ("gemma", VLLM),
        "hybrid": ("qwen3-next", VLLM | {"additional_config": {"gdn_prefill_backend": "triton"}}),
    },
    "sglang": {
        "mla": ("deepseek", SGLANG), "dense": ("granite", SGLANG), "windows": ("gemma", _TRITON),
        "hybrid": ("nemotron-h", _TRITON | _STATES),
    },
}  # fmt: skip


def moved(server: Server) -> Conversation:
    """Each prompt cold, against half of it cached and against beside the others."""
    draw = random.Random(27)
    prompts = [tokens(draw, count) for count in LENGTHS]
    cold = []
    for prompt in prompts:
        server.forget()
        cold.append(server.answer(prompt))
        server.forget()
        server.answer(prompt[: len(prompt) // 2])
        yield "cached", (cold[-1], server.answer(prompt))
    server.forget()
    yield from (("together", both) for both in zip(cold, server.answers(prompts, together=True)))


def case(engine: str, kind: str) -> Case:
    family, settings = KINDS[engine][kind]
    sides = {STOCK: Side(OFF, may_end=True), PATCHED: Side(may_end=True)}
    return Case(f"served {kind}", engine, (), models.make(family), moved, settings, sides, free=(STOCK,))


def failures(about: Case, release: str, found: Found) -> list[str]:
    """One sentence for each check that does not hold. Stock's answers are what they are."""
    stock, patched, limit = found[STOCK], found[PATCHED], ROUNDING[about.name.split()[-1]]
    if "ended" in patched:
        why = [patched["ended"], *patched["said"]][-1]
        return [f"no server started: {why}" if "ended" in stock else f"patched did not start: {why}"]
    wrong = ["stock: attnfix was active"] if stock["processes"] else []
    wrong += cases.unlike_ledgers(about.engine, release, patched["processes"])
    measured = cases.figures(about, found, Path())
    for how, each in measured[PATCHED].items():
        allowed = max([limit, *measured.get(STOCK, {}).get(how, ())])
        if not answers.worst(each) <= allowed:
            wrong.append(f"patched: {how} moves an answer by {answers.worst(each):.3g}, which is above {allowed:.3g}")
    if "ended" not in stock and not processes.corrections(patched["processes"]):
        pairs = [both for how in ("cached", "together") for both in zip(stock["answers"][how], patched["answers"][how])]
        apart = answers.worst([answers.difference(*two) for one, other in pairs for two in zip(one, other)])
        if not apart <= limit:
            wrong.append(f"patched answers otherwise than stock, by {apart:.3g}, and nothing was corrected")
    return wrong


@pytest.mark.parametrize("engine, kind", [(engine, kind) for engine, kinds in KINDS.items() for kind in kinds])
def test_served(
    engine: str, kind: str, needs: Callable[..., None], out: Path, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    needs(engine)
    about = case(engine, kind)
    found = cases.run(about, out)
    wrong = failures(about, str(cases.release_of(engine)), found)
    measured, machines = cases.figures(about, found, Path()), [side.pop("machine", None) for side in found.values()]
    for name, side in found.items():
        del side["answers"]
        if "ended" in side:
            side["said"] = side["said"][-1] if side["said"] else None
        else:
            side["compared"] = {f"cold and {how}": {"difference": answers.worst(each)} for how, each in measured[name].items()}
    if machine := next(filter(None, machines), None):
        told = [f"{kind}: {sentence}" for sentence in wrong]
        record(out, machine, about.name, {"settings": about.settings, "sides": found, "failures": told}, request.node.nodeid)
    assert not wrong, "\n".join(wrong)
