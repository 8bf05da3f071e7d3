"""Proof of sglang.yarn-settings: queries and keys that the engine's rotary embedding rotates, made of a checkpoint's settings.

Real: `get_rope`, its cache, the embedding and its table, of float32 on NVIDIA GPUs and of the model's dtype elsewhere. Spared:
settings that the engine reads, settings that ask for its own rule, `attn_factor` where it corrects the scale, and settings that
Mistral Medium 3.5 had by mistake.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, combine, observe, replaced
from attnfix.patches.lab.sglang import construction

from . import wrap

_ROTARY = "sglang.srt.layers.rotary_embedding"
_ROUNDS = "no get_rope: truncate"
#: From 0.5.16 on, the engine applies the pair beside the factor that stands for it
_DROPS = f"no {_ROTARY}.yarn:YaRNScalingRotaryEmbedding.__init__: mscale_all_dim"
_BASE = 150000.0


class Case(NamedTuple):
    rope: dict[str, Any]
    #: Scale of queries and keys
    scale: float
    head: int = 64
    factor: float = 16.0
    original: int = 256
    kind: str = "rope_type"
    #: Whether the table is float32
    nvidia: bool = True
    where: str = ""


def _usual(factor: float = 16.0, times: float = 1.0) -> float:
    return 0.1 * times * math.log(factor) + 1


_BOTH = {"mscale": 1.0, "mscale_all_dim": 1.0}
#: Of Ministral 3
_PAIR = {**_BOTH, "llama_4_scaling_beta": 0.1}
_EXACT = {"truncate": False}
_BOUNDS = {"beta_fast": 16.0, "beta_slow": 2.0}


class Runner(NamedTuple):
    """Up to 0.5.3.post1, who loads a model alone says how the server was launched."""

    server_args: Any

    def load_model(self, get_rope: Callable[..., Any], *asked: Any) -> Any:
        return get_rope(*asked)


class Proof(Cases):
    modules = (_ROTARY, f"{_ROTARY}.yarn")
    may_lack = (f"{_ROTARY}.yarn",)
    kernel = "none"
    bug = (
        Case(_PAIR, 1.0),
        Case(_PAIR, 1.0, head=128, factor=8.0, kind="type"),
        Case({**_PAIR, **_BOUNDS}, 1.0, head=256, nvidia=False),
        Case({**_PAIR, "mscale": 0.5}, _usual(times=0.5) / _usual()),
        Case({**_EXACT, **_PAIR}, 1.0),
        Case({**_EXACT, **_PAIR}, 1.0, nvidia=False),
        Case(_EXACT, _usual(32.0), factor=32.0, where=_ROUNDS),
        Case({**_EXACT, **_BOUNDS}, _usual(8.0), head=128, factor=8.0, original=512, kind="type", where=_ROUNDS),
        Case({**_EXACT, "attn_factor": 1 / _usual(), **_PAIR}, 1.0, where=_ROUNDS),
    )
    spared = (
        Case({}, _usual()),
        Case({}, _usual(), head=128, nvidia=False),
        Case({"truncate": True, **_BOUNDS}, _usual()),
        Case({"mscale": 1.0, "mscale_all_dim": 0.0}, _usual()),
        Case({"mscale_all_dim": 1.0}, _usual()),
        Case({**_PAIR, "attn_factor": 1 / _usual()}, 1.0, where=_DROPS),
        Case({**_PAIR, "attention_factor": _usual()}, _usual(), where=_DROPS),
        Case({**_BOTH, "llama_4_scaling_beta": 0}, _usual(64.0), factor=64.0, where=_DROPS),
        Case(_PAIR, 1.0, factor=1.0),
    )
    broken = {
        "the scale stays": (wrap.own_scale, lambda real, rope: None),
        "one of both settings is taken as 1": (wrap.usual_scale, lambda real, factor, *times: real(factor)),
        "the table is that of the next position": (wrap.table, lambda real, *of: real(*of).roll(-1, 0)),
        "bounds are rounded": (wrap.bound, lambda real, dimension: round(dimension)),
    }
    broken_where = {"bounds are rounded": _ROUNDS}

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm.rotary import rotated, yarn

        torch.manual_seed(seed)
        runner = Runner(construction.server_args("--attention-backend", "triton"))
        construction.publish(runner.server_args)
        sys.modules[inspect.unwrap(self.engine[_ROTARY].get_rope).__module__]._ROPE_DICT.clear()
        settings = {case.kind: "yarn", "factor": case.factor, "original_max_position_embeddings": case.original, **case.rope}
        first, again = (self._made(case, settings, runner) for _ in range(2))
        longest = int(case.original * case.factor)
        positions = torch.cat([torch.randint(longest, (40,)), torch.tensor([0, 1, longest - 1])])
        dtype = torch.float32 if case.nvidia else torch.bfloat16
        query, keys = (torch.randn(len(positions), heads * case.head, dtype=dtype) for heads in (8, 2))
        bounds = (case.rope.get("beta_fast", 32.0), case.rope.get("beta_slow", 1.0), case.original)
        turns = yarn(case.head, _BASE, case.factor, *bounds, case.rope.get("truncate", True))
        right = [rotated(it.view(len(positions), -1, case.head), positions, turns, case.scale) for it in (query, keys)]
        out = [rotary.forward_native(positions, query.clone(), keys.clone()) for rotary in (first, again)]
        return combine(*(observe(torch.cat(it, -1), torch.cat(right, -1)) for it in out))

    def _made(self, case: Case, settings: dict[str, Any], runner: Runner) -> Any:
        """The rotary embedding of a layer, as models ask for it."""
        import torch

        get_rope = self.engine[_ROTARY].get_rope
        home = sys.modules[self.engine[_ROTARY].RotaryEmbedding.__module__]
        with ExitStack() as stack:
            for name in ("_is_cuda",) if case.nvidia else ("_is_cpu", "_is_cpu_amx_available"):
                if hasattr(home, name):
                    stack.enter_context(replaced(home, name, True))
            longest = int(case.original * case.factor)
            return runner.load_model(get_rope, case.head, case.head, longest, _BASE, True, settings, torch.bfloat16)
