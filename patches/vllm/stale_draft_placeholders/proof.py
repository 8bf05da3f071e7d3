"""Proof of vllm.stale-draft-placeholders: which tokens a model reads on a server with more decodes than a step has room for.

Real: the scheduler, which is a step ahead; the runner and its batch, by their own constructors; of the runner `_update_states`,
`_prepare_inputs`, `_preprocess` and `_bookkeeping_sync`. Emulated: the model, which looks at what it gets; the drafter and the
sampler, which draw; the kernel that finds slots. Spared: servers with room for all, and servers that schedule a step at a time.
"""

from __future__ import annotations

import hashlib
import os
import random
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.vllm.model_runner_v1 import RUNNER, streams
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Case, case
from attnfix.patches.lab.vllm.windows import Windowed, Windows

from . import wrap

_AHEAD = "vllm.v1.core.sched.async_scheduler"
#: Up to 0.11.2, a request whose last step may have been its last is left out, too
_LAST = " or ".join(
    f"{_AHEAD}:AsyncScheduler._update_request_with_output: {name}"
    for name in ("discard_latest_async_tokens", "async_tokens_to_discard")
)
AT_ONCE: dict[str, Any] = {"ahead": False, "scheduler": {"async_scheduling": False}}
_STEPS, _VOCABULARY, _KEPT = 40, 128, 0.6


def served(drafts: int, requests: int, room: int, where: str = "", **more: Any) -> Case:
    """So many requests that decode at a time, and tokens that a step has room for."""
    sizes = dict(layers=("full",), blocks=400, context=256, max_requests=requests, max_tokens=room)
    return case(lambda server: server.talk(requests), where, drafts=drafts, **{"ahead": True, **sizes, **more})


def _one(real: Any, requests: list[Any]) -> None:
    for request in requests:
        request.spec_token_ids = request.spec_token_ids[:-1] or request.spec_token_ids


class Proof(Windowed):
    modules = (RUNNER, SCHEDULER, _AHEAD)
    may_lack = (_AHEAD,)
    needs = f"{_AHEAD}:AsyncScheduler._update_after_schedule: scheduled_spec_decode_tokens"
    absent = "drafts are not scheduled ahead"
    kernel = "emulated"
    measure = "share of requests of which a model reads a token that there is not, or another"
    bug = (served(3, 12, 32), served(1, 9, 16, where=_LAST), served(5, 6, 28, caching=False))
    spared = (
        served(3, 8, 64, where=_LAST),
        served(2, 12, 24, **AT_ONCE),
    )
    broken = {
        "the correction does nothing": (wrap.withdraw, lambda real, requests: None),
        "all placeholders but one are left": (wrap.withdraw, _one),
    }

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        eager = torch.compiler.set_stance("force_eager")
        with patch.dict(os.environ, VLLM_USE_V2_MODEL_RUNNER="0"), streams(), eager, Windows(**case.launch) as engine:
            server = Server(engine, seed)
            case.talk(server)
        return Observation(len(server.wrong) / len(server.text), hashlib.sha256(repr(server.seen).encode()).hexdigest())


class Server:
    """The runner of an engine, and of each request its text and how much of it is computed."""

    def __init__(self, engine: Any, seed: int):
        import torch

        self.engine, self.draw = engine, random.Random(seed)
        self.runner = runner = import_module(RUNNER).GPUModelRunner(engine.config, torch.device("cpu"))
        config = engine.kv_cache_config
        sizes = [group.kv_cache_spec.block_size for group in config.kv_cache_groups]
        of_kernels = "kernel_block_sizes" in signature(runner.may_reinitialize_input_batch).parameters
        runner.may_reinitialize_input_batch(config, *[sizes] * of_kernels)
        runner.kv_cache_config, runner.model = config, SimpleNamespace()
        runner.input_batch.block_table.compute_slot_mapping = lambda *args, **kwargs: None
        self.text: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.drafts: dict[str, list[int]] = {}  # of those that were sampled in the last step
        self.wrong: set[str] = set()
        self.seen: list[Any] = []

    def talk(self, requests: int) -> None:
        for _ in range(_STEPS):
            while len(self.engine.scheduler.running) + len(self.engine.scheduler.waiting) < requests:
                prompt = [self.draw.randrange(3, _VOCABULARY) for _ in range(self.draw.randint(1, self.engine.drafts))]
                request = self.engine.add(prompt, self.draw.randint(10, 30))
                self.text[request.request_id] = prompt
            self.engine.step(self._run)

    def _run(self, step: Any) -> tuple[dict[str, list[int]]]:
        import numpy as np

        runner, batch = self.runner, self.runner.input_batch
        correct = runner._update_states(step)
        self.computed.update({new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs})
        if not step.total_num_scheduled_tokens:
            return ({},)
        names = list(batch.req_ids)
        new = np.array([step.num_scheduled_tokens[name] for name in names], dtype=np.int32)
        prepare = runner._prepare_inputs
        longest = {"max_num_scheduled_tokens": int(new.max())}
        found = prepare(step, new, **{name: longest[name] for name in longest if name in signature(prepare).parameters})
        verified: list[int] = next((one.draft_token_ids.tolist() for one in found if hasattr(one, "draft_token_ids")), [])
        ids = runner._preprocess(step, int(new.sum()))[0].tolist()
        self.seen.append((names, ids, verified))
        if correct:
            correct()
        sampled: dict[str, list[int]] = {}
        for name, count in zip(names, new.tolist()):
            placed = step.scheduled_spec_decode_tokens.get(name, [])
            self._look(name, ids[:count], placed)
            self.computed[name] += count
            if self.computed[name] >= len(self.text[name]):
                sampled[name] = self._sample(name, verified[: len(placed)])
            ids, verified = ids[count:], verified[len(placed) :]
        self._keep(step, names, sampled)
        return (sampled,)

    def _look(self, name: str, ids: list[int], placed: list[int]) -> None:
        """Known tokens are the request's; drafts are those that were made for it, and otherwise any that there are."""
        known = len(ids) - len(placed)
        right = self.text[name][self.computed[name] :][:known] == ids[:known] and all(0 <= one < _VOCABULARY for one in ids)
        made = self.drafts.get(name)
        if not right or (made and (made[: len(placed)] if -1 in placed else placed) != ids[known:]):
            self.wrong.add(name)

    def _sample(self, name: str, drafts: list[int]) -> list[int]:
        tokens = []
        for draft in drafts:
            if draft < 0 or self.draw.random() > _KEPT:
                break
            tokens.append(draft)
        tokens.append(self.draw.randrange(3, _VOCABULARY))
        self.text[name] += tokens
        self.computed[name] = len(self.text[name]) - 1
        return tokens

    def _keep(self, step: Any, names: list[str], sampled: dict[str, list[int]]) -> None:
        """What the runner keeps of a step, drafts too."""
        import torch

        runner, batch, count = self.runner, self.runner.input_batch, self.engine.drafts
        ids = torch.full((len(names), 1 + count), -1, dtype=torch.int32)
        for at, name in enumerate(names):
            tokens = sampled.get(name, [1])
            ids[at, : len(tokens)] = torch.tensor(tokens)
        made = [[self.draw.randrange(3, _VOCABULARY) for _ in range(count)] for _ in names]
        self.drafts = {name: drafts for name, drafts in zip(names, made) if name in sampled}
        batch.prev_sampled_token_ids = runner.valid_sampled_token_count_gpu = None
        runner._draft_token_ids = torch.tensor(made, dtype=torch.int32)
        counts = torch.tensor([len(sampled.get(name, ())) for name in names], dtype=torch.int32)
        last = torch.tensor([sampled.get(name, [1])[-1] for name in names], dtype=torch.int32)
        runner._copy_valid_sampled_token_count(last, counts)
        output = import_module("vllm.v1.outputs").SamplerOutput(sampled_token_ids=ids, logprobs_tensors=None)
        given = dict(
            scheduler_output=step, sampler_output=output, logits=None, hidden_states=torch.zeros(1, 1),
            num_scheduled_tokens=step.total_num_scheduled_tokens, spec_decode_metadata=None,
        )  # fmt: skip
        wanted = signature(runner._bookkeeping_sync).parameters
        runner._bookkeeping_sync(**{name: given[name] for name in given if name in wanted})
