"""What the proofs of prompts that the scheduler pads share: who brings a prompt's KV, and ways to break the correction."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any, get_args

from attnfix.patches.lab.proof import Observation

from .models import NEMOTRON_H
from .states import Ended

#: A pool of an `Engine` with less room than `ends_meet` asks for: requests are preempted, and go on later
TIGHT: dict[str, Any] = {"blocks": 24}


def connector() -> dict[str, Any]:
    """How an `Engine` has the engine's own for benchmarks: it says that it has all of a prompt but the last token."""
    made: Any = import_module("vllm.config").KVTransferConfig
    return {"vllm": {"kv_transfer_config": made(kv_connector="DecodeBenchConnector", kv_role="kv_both")}}


def modes() -> list[str]:
    """In which a server of this release can keep states for other requests: "align", and up to 0.30.0 "all"."""
    known = get_args(import_module("vllm.config.cache").MambaCacheMode)
    return [mode for mode in ("align", "all") if mode in known]


def caching(mode: str) -> dict[str, Any]:
    """How an `Engine` keeps states in this mode."""
    return {"caching": mode != "none", "cache": {"mamba_cache_mode": mode}}


def ends_meet(runner: Any, waves: int, shortest: int = 1) -> Observation:
    """Prompts of so many tokens, and others that a connector brings, begin where requests end: at their last token, which the
    step under way gives; at the context limit, where there is no room for drafts; because their clients go away.

    None is at the limit where that is a bug by itself: Gated DeltaNet, and mode "all".
    """
    context = runner.engine.config.model_config.max_model_len
    limit = runner.mode != "all" and runner.engine.model is NEMOTRON_H
    with suppress(Ended):
        for wave in range(waves):
            first = runner.ask(9, 1 + wave % 3)
            if limit:
                runner.ask(context - 6 + wave % 3, context)
            for at in range(6):
                runner.step()
                if at == 1 and wave % 4 == 3 and not first.is_finished():
                    runner.engine.abort(first)
                runner.ask(shortest, 1 + wave % 2)  # the step that it begins in is its last one, or the next
                if runner.brought:
                    runner.ask(5, 1)
    return runner.observe()


def within_a_block(prompt: int) -> int:
    """A prompt of about this length, whose last token has room for three drafts in its block of 16: in mode "align", 0.27.0 to
    0.28.0 clip a padded row at the end of a block. What comes of that is another bug, and not one of Mamba2."""
    begin, last = divmod(prompt - 1, 16)
    return 16 * begin + last % 11 + 2


def leave(real: Any, scheduler: Any) -> Any:
    real(scheduler).__enter__()
    return nullcontext()


def fewer(real: Any, scheduler: Any) -> Any:
    scheduler.num_spec_tokens -= 1
    context = real(scheduler)
    scheduler.num_spec_tokens += 1
    return context
