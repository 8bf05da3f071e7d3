"""Proof of vllm.mla-context-order: prefills with and without context in the order in which Model Runner V2 puts them.

Real: that order, by the release's own function or statement. What else is real and what is emulated stands in
`patches/lab/vllm/mla_prefill.py`. FlashAttention makes rows without context neutral; with TRT-LLM ragged they are
undefined, and context fills every chunk, or there is none: what goes wrong in a chunk that ends early is the matter of another
fix.
"""

from __future__ import annotations

import ast
import random
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.gate.digest import find
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, fixup_sabotages, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill, uninitialised

_DECODE = 16  # tokens in the cache of the request that decodes
_RUNNER = "v1/worker/gpu/model_runner.py"
# Requests from the one with the fewest new tokens on: which have context. None of them leads; the shortest leads, but not all.
_NONE_LEADS = (False, False, True, True, False, True)
_ONE_LEADS = (True, False, True, False)
_ALL_LEAD = (True, True, True, False, False, False)


def _batch(seed: int, has_context: tuple[bool, ...], least: int, v2: bool) -> Batch:
    """A decode and prefills of drawn lengths; those with context have `least` to 80 tokens of it. A runner orders them."""
    draw = random.Random(seed)
    new = sorted(draw.sample(range(2, 16), len(has_context)))
    requests = {f"prefill {n}": (draw.randint(least, 80) if has else 0, n) for has, n in zip(has_context, new)}
    steps = {"decode": (_DECODE, 1), **requests}
    arrival = [*steps]
    draw.shuffle(arrival)
    order = (_sorted if v2 else _reordered)({name: steps[name] for name in arrival})
    if order.pop(0) != "decode":
        raise ValueError("a decode does not come first")
    return Batch(tuple(requests[name][0] for name in order), tuple(requests[name][1] for name in order), decodes=1)


def _sorted(requests: dict[str, tuple[int, int]]) -> list[str]:
    """Request names in the order of Model Runner V2: by its own function (from 0.26.0) or statement, out of its file."""
    path, num_tokens = _runner(), {name: new for name, (_, new) in requests.items()}
    tree = ast.parse(path.read_text())
    node = find(tree, "sort_batch_req_ids") or next(filter(_is_the_sort, ast.walk(tree)))
    scheduled = SimpleNamespace(num_scheduled_tokens=num_tokens)
    names = run_excerpt(path, node, num_tokens_per_req=num_tokens, scheduler_output=scheduled)
    if isinstance(node, ast.Assign):
        return names["req_ids"]
    arguments = {"num_tokens_per_req": num_tokens, "draft_tokens": {}, "decode_query_len": 1}
    sort = names["sort_batch_req_ids"]
    return sort(**{name: arguments[name] for name in signature(sort).parameters})


def _reordered(requests: dict[str, tuple[int, int]]) -> list[str]:
    """The same of the V1 model runner, by the engine's own function."""
    import numpy as np

    class Rows(SimpleNamespace):
        def swap_states(self, one: int, other: int) -> None:
            for column in vars(self).values():
                column[[one, other]] = column[[other, one]]

    computed = np.array([context for context, _ in requests.values()])
    prompts = np.array([context + (new if name != "decode" else 0) for name, (context, new) in requests.items()])
    rows = Rows(req_ids=np.array([*requests]), num_computed_tokens_cpu=computed, num_prompt_tokens=prompts)
    scheduled = SimpleNamespace(num_scheduled_tokens={name: new for name, (_, new) in requests.items()})
    utils: Any = import_module("vllm.v1.attention.backends.utils")
    utils.reorder_batch_to_split_decodes_and_prefills(rows, scheduled, decode_threshold=1)
    return list(rows.req_ids)


def _is_the_sort(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node).startswith("req_ids = sorted(")


def _runner() -> Path:
    return Path(sys.modules["vllm"].__path__[0], _RUNNER)


class Proof(MlaPrefill):
    v2 = True
    around = {"`VLLM_USE_V2_MODEL_RUNNER=0`": {"v2": False}}

    def prepare(self) -> None:
        super().prepare()
        if not _runner().is_file():
            raise NoSuchPath("no Model Runner V2")

    def scenario(self, seed: int) -> Observation:
        return combine(self._run_flash(seed, _NONE_LEADS), self._run_ragged(seed, _ONE_LEADS))

    def control(self, seed: int) -> Observation:
        """Requests with context have fewer new tokens than the others: the order that the older runner gives every batch."""
        return combine(self._run_flash(seed, _ALL_LEAD), self._run_ragged(seed, _ALL_LEAD), self._run_flash(seed, (True,) * 4))

    def _run_flash(self, seed: int, has_context: tuple[bool, ...]) -> Observation:
        return observe(*self.outputs(seed, _batch(seed, has_context, 1, self.v2), backend="fa"))

    def _run_ragged(self, seed: int, has_context: tuple[bool, ...]) -> Observation:
        self.use()
        with uninitialised(1.0):  # an output of the engine's that the kernel leaves as it is
            return observe(*self.outputs(seed, _batch(seed, has_context, 65, self.v2)))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        broken = {
            "the order is never wrong": replaced(wrap, "context_leads", lambda lens: True),
            "the first request answers for all": replaced(wrap, "context_leads", lambda lens: lens[0] > 0),
            "the last request answers for all": replaced(wrap, "context_leads", lambda lens: lens[-1] == 0),
        }
        if not hasattr(self.mla, "mask_empty_context"):  # the engine's own, from 0.26.0
            broken |= {f"tokens without context: {name}": sabotage for name, sabotage in fixup_sabotages().items()}
        return broken
