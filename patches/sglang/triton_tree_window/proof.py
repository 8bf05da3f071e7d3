"""Proof of sglang.triton-tree-window: trees of drafts verified in layers with a window, eager and replayed.

Real: `ServerArgs`, `RadixAttention`, the pools and allocators, `ForwardBatch`, `TritonAttnBackend` with its own `__init__`, its
layouts of a batch, and its Triton kernel, in the interpreter. Played: the graph runner, which calls the backend at capture and
replay. A replay attends again with the metadata of capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, device, observe, replaced
from attnfix.patches.lab.sglang import construction
from attnfix.patches.lab.sglang.speculation import draft_input
from attnfix.patches.sglang.triton_window_decode.proof import Server, on_device

_BACKEND = "sglang.srt.layers.attention.triton_backend"
_SPEC = "sglang.srt.speculative.eagle_utils"

_HEADS, _DIM, _CAP = 2, 32, 50.0
_FULL, _SLIDING = 0, 1  # layers
_DRAFTS = 7
_TREE, _CHAIN = [-1, 0, 0, 1, 1, 2, 3], [*range(-1, _DRAFTS - 1)]  # the parent of each draft
_WINDOW, _NARROW = 8, 1  # tokens that a token sees before itself; the latter leaves ancestors out, too
#: Cached tokens of each request: far behind the window, at its end, and within it
_CACHED = [25, _WINDOW + 1, 3]
_FLAGS = (
    "--attention-backend", "triton", "--triton-attention-num-kv-splits", "2", "--speculative-algorithm", "EAGLE",
    "--speculative-num-steps", "3", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", str(_DRAFTS),
)  # fmt: skip
_GEMMA = {
    **construction.LLAMA, "num_attention_heads": _HEADS, "num_hidden_layers": 2, "max_position_embeddings": 40,
}  # fmt: skip


class Trees(Server):
    """A server that verifies trees, or with `parents` of a chain chains."""

    tokens = _DRAFTS

    def __init__(
        self, served: Any, spec: Any, seed: int, window: int = _WINDOW, pool: bool = False, parents: list[int] = _TREE
    ):
        import torch

        super().__init__(served, seed, window, pool)
        self.spec, self.window, self.parents = spec, window, parents
        self.among = torch.eye(_DRAFTS, dtype=torch.bool)
        for draft, parent in enumerate(parents[1:], 1):
            self.among[draft] |= self.among[parent]
        if parents is _CHAIN and hasattr(self.backend, "topk"):
            self.backend.topk = 1

    def verify(self, cached: list[int] = _CACHED, graph: bool = False, layer_id: int = _SLIDING) -> Observation:
        """The layer's attention of the drafts of each request."""
        import torch

        for row, n in enumerate(cached):
            self.fill(row, range(n))
        if graph:
            batch = self._graph_batch(cached)
        else:
            batch = self._batch(cached)
            with on_device():
                self.backend.init_forward_metadata(batch)
        rows = batch.batch_size * _DRAFTS
        q, k, v = (torch.randn(rows, n, _DIM, generator=self.draw).half().to(device()) for n in (_HEADS, 1, 1))
        reference = []
        for row, n in enumerate(cached):
            for draft in range(_DRAFTS):
                at = row * _DRAFTS + draft
                own = row * _DRAFTS + self.among[draft].nonzero()[:, 0].to(device())
                keys, values = (torch.cat([text[row, :n], x[own]]) for text, x in zip(self.text[layer_id], (k, v)))
                seen = self.window + 1 if layer_id == _SLIDING else len(keys)
                q[at] = q[at] / 4 + sum(keys[-seen:][:1]) + sum(keys[:-seen][-1:])  # the window's oldest, and one before
                keys, values = (x[-seen:].expand(-1, _HEADS, -1) for x in (keys, values))
                reference.append(emulators.attention(q[at : at + 1], keys, values, _DIM**-0.5, soft_cap=_CAP)[0])
        with on_device():
            out = self.backend.forward_extend(q.flatten(1), k, v, self.layers[layer_id], batch, save_kv_cache=False)
        return observe(out.view(q.shape)[: len(reference)], torch.cat(reference))

    def _batch(self, at: list[int], size: int | None = None) -> Any:
        """A verification, with requests of one token behind the others up to `size`."""
        import torch

        padding = (size or len(at)) - len(at)
        tensor = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        lens = at + [1] * padding
        depth = self.among.sum(1) - 1
        positions = torch.cat([n + depth for n in lens])
        masks = [torch.cat([torch.ones(_DRAFTS, n, dtype=torch.bool), self.among], 1).flatten() for n in lens]
        slots = [self._slots(row, range(n, n + _DRAFTS)) for row, n in enumerate(at)]
        drafts = draft_input(
            self.spec, draft_token_num=_DRAFTS, num_tokens_per_req=_DRAFTS, positions=positions,
            custom_mask=torch.cat(masks).to(device()), topk=1 if self.parents is _CHAIN else 2,
        )  # fmt: skip
        return self.runner.forward_batch(
            "TARGET_VERIFY", batch_size=len(lens), input_ids=tensor([0] * len(lens) * _DRAFTS),
            seq_lens=tensor(lens), req_pool_indices=tensor([*range(len(at))] + [3] * padding), seq_lens_sum=sum(lens),
            seq_lens_cpu=torch.tensor(lens), positions=positions.to(device()), spec_info=drafts,
            out_cache_loc=torch.cat([*slots, tensor([0] * padding * _DRAFTS)]),
        )  # fmt: skip


class Proof(proof.Proof):
    modules = (_BACKEND, _SPEC)
    may_lack = (_SPEC,)
    kernel = "interpreted"

    def prepare(self) -> None:
        self.served = construction.serve(*_FLAGS, config=_GEMMA, draft=False, device=device())

    def _server(self, seed: int, **options: Any) -> Trees:
        return Trees(self.served, self.engine.get(_SPEC), seed, **options)

    def scenario(self, seed: int) -> Iterator[Observation]:
        yield self._server(seed, pool=True).verify()
        yield self._server(seed, window=_NARROW).verify()
        replayed = self._server(seed)
        yield replayed.verify(graph=True)
        yield replayed.verify(_CACHED[:1], graph=True)  # beside a request that is padding

    def control(self, seed: int) -> Iterator[Observation]:
        """Trees in a layer without a window, and chains."""
        yield self._server(seed).verify(layer_id=_FULL)
        chains = self._server(seed, parents=_CHAIN)
        yield chains.verify()
        yield chains.verify(graph=True)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.window_mask

        def nothing(args: Any, launch: Any, most: int) -> Any:
            return args

        def endless(seen: Any, window: int, most: int) -> Any:
            return real(seen, 2 * most, most)

        def longer(seen: Any, window: int, most: int) -> Any:
            return real(seen, window + 1, most)

        def over_drafts_alone(seen: Any, window: int, most: int) -> Any:
            mask = real(seen, window, most)
            mask[..., :most] = True
            return mask

        return {
            "the correction does nothing": replaced(wrap, "by_mask", nothing),
            "there is no window": replaced(wrap, "window_mask", endless),
            "the window is a token longer": replaced(wrap, "window_mask", longer),
            "the window spares what is cached": replaced(wrap, "window_mask", over_drafts_alone),
        }
