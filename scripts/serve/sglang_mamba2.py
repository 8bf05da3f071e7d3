"""Case `mamba2` of scripts/serve/gpu_e2e_sglang.py: conversations with a NemotronH, whose states the radix cache keeps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnfix.patches.catalogue import BY_ID
from scripts.serve import conversations, e2e_sglang, tiny_nemotron
from scripts.serve.conversations import Talk
from scripts.serve.e2e import PATCHED, STOCK, Server
from scripts.serve.sides import Side

FIXES = (
    "sglang.mamba2-initial-state", "sglang.mamba2-h-grid", "sglang.mamba2-track-tail", "sglang.mamba-track-boundary",
)  # fmt: skip
#: A state is kept every so many tokens, which is the least: a chunk of the model's
_INTERVAL = tiny_nemotron.CHUNK
#: Of what runs together, all reach a kept state in the same decode step, when prompts that had to wait come in: some answers
#: end in each of the steps around it. The others end behind it and continue from it; the short ones, from a prompt's state
_LONG, _SHORT = _INTERVAL + 12, tuple(range(_INTERVAL - 33, _INTERVAL - 23))
ANSWER = (_LONG,) * 6 + _SHORT + (8, 12, _LONG, 20, 9, _LONG, 17, 8, _LONG, 30)
FIRST = tuple(28 + _INTERVAL * (at % 3) for at in range(16)) + tuple(140 + 83 * at % 600 for at in range(10))
_TALK = Talk(first=FIRST, answer=ANSWER, more=40, turns=3, vocabulary=tiny_nemotron.VOCABULARY)
SETTINGS: dict[str, Any] = e2e_sglang.SHARED | {
    "context_length": 8192, "max_total_tokens": 65536, "mem_fraction_static": 0.3, "max_mamba_cache_size": 400,
    "max_running_requests": 16, "chunked_prefill_size": 2048, "cuda_graph_max_bs": 16,
    "mamba_scheduler_strategy": "extra_buffer", "mamba_track_interval": _INTERVAL,
}  # fmt: skip


def run(folder: Path, out: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    on = {BY_ID[fix].switch: "1" for fix in FIXES if fix in BY_ID}
    sides = {STOCK: Side({"ATTNFIX": "0"}), PATCHED: Side(on)}
    found = e2e_sglang.serving(tiny_nemotron.make(folder), out, SETTINGS)(sides, _conversations)
    result = {"settings": SETTINGS, "talk": asdict(_TALK), "sides": found}
    return result, conversations.table(found), conversations.failures(found, FIXES)


def _conversations(server: Server) -> dict[str, Any]:
    answer = lambda prompts, new: server.ask("answers", prompts=prompts, new_tokens=new)["answers"]  # noqa: E731
    return _TALK(answer, lambda: server.ask("forget"))
