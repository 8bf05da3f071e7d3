"""Proof of sglang.eagle-draft-positions: draft steps of both EAGLE workers, chains and trees.

Spared: one step, whose draft needs no forward. Real: the loop, the choice of drafts, the tree. Emulated: the draft model, one
layer of linear attention over its prompts. It is right where the position of a draft is the place of its KV.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab import rotary
from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    engine,
    speculation,
)

from . import wrap

_V1, _V2 = "sglang.srt.speculative.eagle_worker", "sglang.srt.speculative.eagle_worker_v2"
#: Classes that draft in spec v2: the first that a release has does
_WORKERS = "EagleDraftWorker", "EAGLEWorkerV2"
_VOCABULARY, _DIM = 64, 32


class Case(NamedTuple):
    """prompts: their lengths; 0 is a row of padding. `hot`: whether the drafter has a vocabulary of its own."""

    steps: int
    topk: int = 1
    prompts: tuple[int, ...] = (5, 1, 40)
    hot: bool = False
    v2: bool = False

    @property
    def where(self) -> str:
        return " or ".join(f"{_V2}:{worker}.draft_forward" for worker in _WORKERS) if self.v2 else ""


class Result(NamedTuple):
    logits_output: Any
    can_run_graph: bool = True


class Drafter:
    """The draft model: [tokens] ids and positions, [tokens, dim] hidden states → [tokens, vocabulary] scores."""

    def __init__(self, case: Case, seed: int):
        import torch

        draw = torch.Generator().manual_seed(seed)
        self.table = torch.randn(_VOCABULARY, _DIM, generator=draw)
        self.case, self.model, self.worst = case, self, 0.0
        self.scores: list[Any] = []
        self.prompts = [torch.randn(n, 1, _DIM, generator=draw) for n in case.prompts for _ in range(case.topk)]
        #: [requests * topk * steps]: a draft's slot → its place in its request
        self.places = torch.tensor([n + step for n in case.prompts for _ in range(case.topk) for step in range(case.steps)])

    def forward(self, *given: Any, **_: Any) -> Any:
        batch = given[-1]
        drafts = self.table[batch.input_ids] + batch.spec_info.hidden_states
        scores, right = (self._scores(drafts, at) for at in (batch.positions, self.places[batch.out_cache_loc]))
        self.worst = max(self.worst, float((scores - right).norm() / right.norm()))
        self.scores.append(scores)
        output = SimpleNamespace(
            next_token_logits=scores.float(), hidden_states=(drafts + scores @ self.table.double()).float()
        )
        return output if len(given) == 3 else Result(output)

    def _scores(self, drafts: Any, positions: Any) -> Any:
        import torch

        seen = []
        for draft, position, prompt in zip(drafts, positions, self.prompts):
            keys = torch.cat([prompt, draft[None, None]])
            at = torch.cat([torch.arange(len(prompt)), position[None]])
            turned = rotary.rotated(keys, at, rotary.frequencies(_DIM))
            seen.append(turned[:-1] @ turned[-1] / _DIM @ prompt[:, 0].double())
        return torch.stack(seen) @ self.table.double().T / _DIM


class Proof(Cases):
    modules = may_lack = (_V1, _V2)
    kernel = "emulated"
    needs = f"{_V1}:EAGLEWorker.draft_forward"
    absent = "the first worker of EAGLE is gone, and the second one counts positions on after a step"
    bug = (
        *(Case(steps, topk) for steps, topk in ((2, 1), (3, 1), (5, 4))),
        Case(3, 2, (7, 0), hot=True),
        *(Case(steps, topk, v2=True) for steps, topk in ((2, 1), (5, 4))),
    )
    spared = (Case(1), Case(1, 4), Case(1, v2=True))
    broken = {
        "the correction does nothing": (wrap.begin, lambda real, positions: None),
        "positions begin two lower": (wrap.begin, lambda real, positions: positions.sub_(2)),
        "the first request alone is corrected": (wrap.begin, lambda real, positions: positions[:1].sub_(1)),
    }

    def __init__(self) -> None:
        speculation.choose_in_torch()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        module = self.engine[_V2 if case.v2 else _V1]
        drafter, requests = Drafter(case, seed), len(case.prompts)
        names = _WORKERS if case.v2 else ("EAGLEWorker",)
        worker = object.__new__(next(getattr(module, name) for name in names if hasattr(module, name)))
        worker.__dict__.update(
            topk=case.topk, speculative_num_steps=case.steps, speculative_num_draft_tokens=case.steps + 1,
            hot_token_id=torch.arange(_VOCABULARY).flip(0) if case.hot else None, enable_nan_detection=False,
            server_args=SimpleNamespace(enable_nan_detection=False, speculative_algorithm="EAGLE"),
            draft_attn_backend=SimpleNamespace(attn_backends=[None] * case.steps), model_runner=drafter,
            _model_runner=drafter, draft_runner=drafter,
        )  # fmt: skip
        draw = torch.Generator().manual_seed(seed + 1)
        found = torch.randn(requests, _VOCABULARY, generator=draw).softmax(-1).topk(case.topk)
        drafts = module.EagleDraftInput(
            topk_p=found.values, topk_index=found.indices, hidden_states=torch.randn(requests, _DIM, generator=draw)
        )
        batch = SimpleNamespace(
            spec_info=drafts, batch_size=requests, out_cache_loc=torch.arange(len(drafter.places)),
            positions=torch.tensor(case.prompts).repeat_interleave(case.topk),
        )  # fmt: skip
        with engine.on_cpu(), torch.compiler.set_stance("force_eager"):
            chosen = torch.utils._pytree.tree_leaves((worker.draft_forward(batch), drafter.scores))
        return Observation(drafter.worst, hashlib.sha256(repr([each.tolist() for each in chosen]).encode()).hexdigest())
