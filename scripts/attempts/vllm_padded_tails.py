"""Attempts at vLLM's padded prompts: whose recurrent states hold tokens that are not the request's?

    TRITON_INTERPRET=1 PYTHONPATH=SITE python -m scripts.attempts.vllm_padded_tails [--v2]

SITE: a folder with a stock vLLM, 0.26.0-0.33.0. The release's own scheduler and metadata builders run on the CPU; the layers
are chains over tokens (`patches/lab/vllm/states.py`). With --v2 rows are sorted as Model Runner V2 does. One line for each
kind of traffic, with 1 and 3 drafts: states and outputs that were of other tokens, of how many.

What was seen, of 0.33.0 (and 0.30.0 alike):
- prompts of one token: wrong in both runners, with Mamba2 and with Gated DeltaNet (vllm.padded-one-token-prompt);
- one token left of each prompt by a connector: right from 0.30.0 on; up to 0.29.0 Mamba2 is wrong (vllm.mamba2-padded-tail);
- one to K + 2 tokens left: Mamba2 is wrong in the V1 runner, where two or more real tokens stand before a padded row. It is
  right in V2, which sorts padded rows first;
- two to K + 1 tokens left, prompts that are computed here (in chunks, too), requests that go on after a preemption: all right.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any

from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT, Engine
from attnfix.patches.lab.vllm.states import Runner
from attnfix.prove import stubs

_SEEDS, _STEPS = 6, 60


def left_by_connector(runner: Runner, most: int, least: int = 1) -> None:
    """The engine's connector for benchmarks leaves one token of a prompt; now it leaves one of `least` to `most`."""
    connector = runner.engine.scheduler.connector.connector_scheduler

    def matched(request: Any, computed: int) -> tuple[int, bool]:
        if request.request_id in connector._filled_requests:
            return 0, False
        return max(0, request.num_tokens - computed - runner.draw.randrange(least, most + 1)), False

    connector.get_num_new_matched_tokens = matched


def attempt(name: str, model: dict, drafts: int, prompts: Any, left: tuple[int, int] | None = None, **more: Any) -> None:
    wrong = seen = preempted = 0
    for seed in range(_SEEDS):
        if left:
            made: Any = import_module("vllm.config").KVTransferConfig
            more["vllm"] = {"kv_transfer_config": made(kv_connector="DecodeBenchConnector", kv_role="kv_both")}
        with Engine(model, drafts=drafts, caching=False, max_tokens=64, **more) as engine:
            runner = Runner(engine, seed, v2="--v2" in sys.argv)
            if left:
                left_by_connector(runner, left[1], left[0])
            for at in range(_STEPS):
                for _ in range(runner.draw.choice((0, 1, 0, 2)) if at < 20 else 0):
                    runner.ask(prompts(runner.draw), runner.draw.randrange(3, 14))
                runner.step()
            wrong, seen = wrong + runner.wrong, seen + runner.seen
            preempted += sum(each.request.num_preemptions for each in runner.requests.values())
    kind = model["model_type"]
    print(f"{kind:10} {drafts} drafts, {name:34} {wrong:4} of {seen}, {preempted} preemptions", flush=True)


def main() -> None:
    stubs.install("vllm")
    logging.disable(logging.WARNING)
    for model in (NEMOTRON_H, QWEN3_NEXT):
        for drafts in (1, 3):
            attempt("prompts of 2 tokens and more", model, drafts, lambda draw: draw.randrange(2, 90))
            attempt("prompts of 1 and of 20 tokens", model, drafts, lambda draw: draw.choice((1, 20)))
            for left in ((1, 1), (1, drafts + 2), (2, drafts + 1)):
                attempt(f"{left[0]} to {left[1]} tokens left", model, drafts, lambda draw: draw.randrange(9, 60), left)
            attempt("few blocks", model, drafts, lambda draw: draw.randrange(20, 60), blocks=36, context=160)


if __name__ == "__main__":
    main()
