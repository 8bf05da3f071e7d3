"""Proof of sglang.mamba-float16-conv: prompts of a chunk and more in a layer whose convolution has states of another dtype.

What is real and what is played: `attnfix.patches.lab.sglang.mamba2`. The dtypes of the states are those that the engine
chooses, and the others that its variables allow. Where the engine raises, the error is infinite. No model is bfloat16: Triton's
interpreter does not compute in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, replaced
from attnfix.patches.lab.sglang.mamba2 import CHUNK, Mamba2Layer, Server


class Proof(Mamba2Layer):
    measure = "relative error against float64, infinite where the engine raises"

    #: Dtypes of a model and of its states; without, those that the engine chooses
    models: tuple[tuple[str, str], ...] = (("float16", ""), ("float16", "float32"), ("float32", "float16"))
    around = {"`SGLANG_MAMBA_CONV_DTYPE=float16` beside `--dtype float16`": {"models": (("float16", "float16"),)}}

    def dtypes(self, chosen: Any) -> Any:
        return chosen

    def scenario(self, seed: int) -> Iterator[Observation]:
        """A float16 model with the engine's states, which are bfloat16; then other dtypes of both."""
        import torch

        try:
            for model, states in self.models:
                of = self._with(getattr(torch, states)) if states else self
                yield from self._conversation(Server(of, seed, dtype=getattr(torch, model)))
        except RuntimeError as error:
            if "dtypes match" not in str(error):
                raise
            yield Observation(math.inf, hashlib.sha256(str(error).encode()).hexdigest())

    def control(self, seed: int) -> Observation:
        """Models whose states have their own dtype; a float16 model whose prompts are short, or are not kept."""
        import torch

        seen = [*self._conversation(Server(self._with(torch.float32), seed))]
        seen += self._conversation(Server(self._with(torch.float16), seed, dtype=torch.float16))
        server = Server(self, seed, dtype=torch.float16)
        short = server.fresh(CHUNK - 3)
        seen += [server.prefill({short: CHUNK - 3}), server.decode([short])]
        server = Server(self, seed, tracks=False, dtype=torch.float16)
        seen.append(server.prefill({server.fresh(CHUNK + 3): CHUNK + 3}))
        return combine(*seen)

    def _conversation(self, server: Server) -> Iterator[Observation]:
        """Prompts with and without a whole chunk in one batch, a prompt behind a kept state, and a token after each; not
        after bfloat16 states, as the interpreter cuts off where a GPU rounds to them."""
        import torch

        long, whole, short = server.fresh(CHUNK + 5), server.fresh(CHUNK), server.fresh(4)
        yield server.prefill({whole: CHUNK, long: CHUNK + 5, short: 4})  # in this order: others are sglang.mamba2-h-grid's
        yield from map(server.cached, (whole, long))
        behind = server.behind(long, CHUNK + 2)
        yield server.prefill({behind: CHUNK + 2})
        yield server.cached(behind)
        if server.states.conv[0].dtype != torch.bfloat16:
            yield server.decode([whole, long, behind])

    def _with(self, states: Any) -> Proof:
        """The same with convolution states of that dtype, as `SGLANG_MAMBA_CONV_DTYPE` has it."""
        import copy

        other = copy.copy(self)
        other.params = dataclasses.replace(self.params, dtype=dataclasses.replace(self.params.dtype, conv=states))
        return other

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        kind: Any = wrap._converting_tensor()
        stored = kind.__setitem__

        def first_alone(self: Any, index: Any, values: Any) -> None:
            stored(self, index[:1], values[:1])

        def as_bits(self: Any, index: Any, values: Any) -> None:
            stored(self, index, values.view(self.dtype) if values.dtype.itemsize == self.dtype.itemsize else values)

        def late(self: Any, index: Any, values: Any) -> None:
            stored(self, index, values.roll(1, -1))

        return {
            "nothing is converted": replaced(wrap, "converting", lambda states: states),
            "a copy takes them": replaced(wrap, "converting", lambda states: states.clone().as_subclass(kind)),
            "those of the first request alone": replaced(kind, "__setitem__", first_alone),
            "bits are taken for numbers": replaced(kind, "__setitem__", as_bits),
            "tokens of another position": replaced(kind, "__setitem__", late),
        }
