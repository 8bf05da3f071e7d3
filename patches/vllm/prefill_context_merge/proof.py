"""Proof of vllm.prefill-context-merge: fresh prompts beside requests whose context fills every chunk.

What is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py`. Every batch runs twice: once with rows
without KV as FlashInfer's launcher leaves them, where the output must be right, and once with undefined rows: a token without
context whose result changes has read its prefix.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any

from attnfix.patches.lab.proof import Observation, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

_MIXED = Batch((70, 65, 0, 0), (3, 2, 4, 5), decodes=1)  # a decode request before them: its token is no prefill token
_ALL = Batch((70, 65, 79, 80), (3, 2, 4, 5))  # context for everyone: the merge needs every prefix
_NOT_FIRST = Batch((70, 0, 65, 0), (3, 4, 2, 5))


class Proof(MlaPrefill):
    measure = "share of the tokens without context whose prefix is read"
    batch = _MIXED

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, self.batch)

    def control(self, seed: int) -> Observation:
        return self._run(seed, _ALL)

    def _run(self, seed: int, batch: Batch) -> Observation:
        self.use()
        out, reference = self.outputs(seed, batch)
        seen = observe(out, reference)
        if not seen.error < 0.01:
            return Observation(math.inf, seen.bits)
        self.use(undefined=True)
        undefined, _ = self.outputs(seed, batch)
        changed = (undefined != out).flatten(1).any(1)[batch.without_context.repeat(2)]  # on one rank, on two
        return Observation(changed.double().mean().item() if len(changed) else 0.0, seen.bits)

    def sabotages(self) -> dict[str, Any]:
        import attnfix.kernels as kernels

        from . import wrap

        real, count = kernels.merge_attn_states, wrap.tokens_with_context

        def nothing(*args: Any, prefill_tokens_with_context: int, **kwargs: Any) -> None:
            real(*args, **kwargs)

        def requests_off(by: int) -> Any:
            def wrong(starts: list[int], chunk_lens: Any) -> int | None:
                return None if count(starts, chunk_lens) is None else starts[2 + by] - starts[0]

            return replaced(wrap, "tokens_with_context", wrong)

        def sum_of_tokens(starts: list[int], chunk_lens: Any) -> int:
            has_context = (chunk_lens > 0).any(0).tolist()
            return sum(stop - start for has, start, stop in zip(has_context, starts, starts[1:]) if has)

        @contextmanager
        def whatever_the_order() -> Any:
            with replaced(wrap, "tokens_with_context", sum_of_tokens), replaced(self, "batch", _NOT_FIRST):
                yield

        return {
            "the correction does nothing": replaced(kernels, "merge_attn_states", nothing),
            "one request too many": requests_off(1),
            "one request too few": requests_off(-1),
            "applied where requests with context do not come first": whatever_the_order(),
        }
