"""Proof of vllm.gdn-launch-assert: requests with one token and no drafts beside requests whose drafts are verified.

Real: the builder of Gated DeltaNet's metadata, made by its own constructor from a Qwen3-Next config, its spec, and the batch.
Emulated: the layer, a gated linear recurrence that reads and writes states where the metadata says, as the kernels do.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import unpinned

_GDN, _CACHE = "vllm.v1.attention.backends.gdn_attn", "vllm.v1.kv_cache_interface"
_K, _D, _DECAY = 3, 8, 0.9  # drafts of a request; size of a head; what is kept of a state per token

#: A request: tokens before, tokens of this step, drafts (-1: none), tokens that the last step accepted of it
_VERIFIED, _TWO_KEPT = (20, _K + 1, _K, 1), (31, _K + 1, _K, 2)
_LAST_TOKEN, _NO_DRAFTS = (9, 1, -1, 1), (40, 1, -1, 1)
_PREFILL, _FRESH = (16, 5, -1, 1), (0, 7, -1, 1)


class Proof(proof.Proof):
    modules = (_GDN, _CACHE)
    may_lack = (_GDN,)

    def prepare(self) -> None:
        import inspect

        from attnfix.patches.lab.vllm.construction import Worker
        from attnfix.patches.lab.vllm.models import QWEN3_NEXT

        if _GDN not in self.engine:
            raise NoSuchPath("no Gated DeltaNet")
        build = inspect.unwrap(self.engine[_GDN].GDNAttentionMetadataBuilder.build)
        if "num_decode_draft_tokens_cpu" not in inspect.signature(build).parameters:
            raise NoSuchPath("Gated DeltaNet's builder knows no drafts")
        drafts = {"method": "ngram", "num_speculative_tokens": _K, "prompt_lookup_max": 2}
        self.worker = Worker(
            QWEN3_NEXT, backend="flash_attn.FlashAttentionBackend", speculative=drafts, cache={"enable_prefix_caching": False}
        )
        compilation = self.worker.config.compilation_config
        for name in ("max_capture_size", "max_cudagraph_capture_size"):  # where there is a GPU, the engine sets it
            if getattr(compilation, name, 0) is None:
                setattr(compilation, name, 8)

    def scenario(self, seed: int) -> Observation:
        """A last token of a prompt, a request without drafts; first, last, and beside a prefill."""
        steps = (
            (_VERIFIED, _LAST_TOKEN), (_NO_DRAFTS, _TWO_KEPT), (_VERIFIED, _NO_DRAFTS, _TWO_KEPT),
            (_LAST_TOKEN, _VERIFIED, _PREFILL, _NO_DRAFTS),
        )  # fmt: skip
        return combine(*(self._step(seed + at, requests) for at, requests in enumerate(steps)))

    def control(self, seed: int) -> Observation:
        """Drafts alone, beside prefills of several tokens, and steps without any drafts; requests of zero drafts."""
        zero = (12, 1, 0, 2)
        steps = (
            (_VERIFIED, _TWO_KEPT), (_FRESH, _VERIFIED), (_TWO_KEPT, _PREFILL, _VERIFIED),
            (_LAST_TOKEN, _NO_DRAFTS), (_VERIFIED, zero), (_LAST_TOKEN, _PREFILL),
        )  # fmt: skip
        return combine(*(self._step(seed + at, requests) for at, requests in enumerate(steps)))

    def _step(self, seed: int, requests: tuple[tuple[int, int, int, int], ...]) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        q, k, v = (torch.randn(sum(r[1] for r in requests), _D, generator=draw).double() * _D**-0.5 for _ in range(3))
        states = torch.randn(1 + len(requests) * (_K + 1), _D, _D, generator=draw).double()
        states[0] = 0.0  # the null block
        tables = 1 + torch.arange(len(requests) * (_K + 1), dtype=torch.int32).view(len(requests), _K + 1)
        reference = self._reference(requests, states, tables, q, k, v)
        with self.worker, unpinned():
            batch = self.worker.batch([r[0] for r in requests], [r[1] for r in requests], block_table_tensor=tables)
            places = {"num_accepted_tokens": 3, "num_decode_draft_tokens_cpu": 2}
            columns = {name: torch.tensor([r[at] for r in requests], dtype=torch.int32) for name, at in places.items()}
            try:
                metadata = self._builder().build(0, batch, **columns)
            except AssertionError as error:
                return Observation(math.inf, hashlib.sha256(str(error).encode()).hexdigest())
        out = _layer(metadata, states, q, k, v)
        kept = [states[int(row[max(0, r[1] - 1) if r[2] >= 0 else 0])] for r, row in zip(requests, tables)]
        return observe(torch.cat([out.flatten(), *(state.flatten() for state in kept)]), reference)

    def _builder(self) -> Any:
        import torch

        spec = self.engine[_CACHE].MambaSpec(
            block_size=4096, shapes=((3, 64), (2, 16, 16)), dtypes=(torch.bfloat16, torch.float32), num_speculative_blocks=_K
        )
        return self.engine[_GDN].GDNAttentionMetadataBuilder(spec, ["layer"], self.worker.config, torch.device("cpu"))

    def _reference(self, requests: Any, states: Any, tables: Any, q: Any, k: Any, v: Any) -> Any:
        """Outputs in order, then each request's state behind its last token."""
        import torch

        outs, ends, at = [], [], 0
        for (before, new, _, accepted), row in zip(requests, tables):
            state = states[int(row[accepted - 1])] if before else torch.zeros(_D, _D).double()
            for token in range(at, at + new):
                state = _DECAY * state + k[token, :, None] * v[token]
                outs.append(q[token] @ state)
            at += new
            ends.append(state)
        return torch.cat([torch.stack(outs).flatten(), *(state.flatten() for state in ends)])

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "no request is seen": replaced(wrap, "states_are_in_the_first_block", lambda accepted, requests: False),
            "lengths keep their ones": replaced(wrap, "starts_without_decodes", _plain),
            "only what never is, is left out": replaced(wrap, "starts_without_decodes", lambda: _without(wrap, 2)),
        }


def _plain() -> Any:
    import torch

    return torch.Tensor


def _without(wrap: Any, length: int) -> Any:
    """A class like the correction's, for another length."""
    import torch

    class Starts(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = super().__torch_function__(function, types, args, kwargs or {})
            hides = function is torch.Tensor.__eq__ and args[1] == length
            return torch.zeros_like(found.as_subclass(torch.Tensor)) if hides else found

    return Starts


def _layer(metadata: Any, states: Any, q: Any, k: Any, v: Any) -> Any:
    """The layer over all tokens of a step: drafts where its metadata says so, then prefills or decodes."""
    import torch

    out = torch.zeros_like(v)

    def run(tokens: list[int], state: Any, written: list[int]) -> None:
        for token, block in zip(tokens, written, strict=True):
            state = _DECAY * state + k[token, :, None] * v[token]
            out[token] = q[token] @ state
            if block > 0:
                states[block] = state

    verified = metadata.spec_sequence_masks is not None
    before = states.clone()
    if verified:
        starts = metadata.spec_query_start_loc.tolist()
        tokens = _tokens(metadata, drafts=True)
        for at, kept in enumerate(metadata.num_accepted_tokens.tolist()[: metadata.num_spec_decodes]):
            mine = tokens[starts[at] : starts[at + 1]]
            blocks = metadata.spec_state_indices_tensor[at].tolist()
            run(mine, before[blocks[kept - 1]], blocks[: len(mine)])
    if metadata.num_prefills or metadata.num_decodes:
        starts, initial = metadata.non_spec_query_start_loc.tolist(), metadata.has_initial_state
        tokens = _tokens(metadata, drafts=False) if verified else list(range(starts[-1]))
        for at, block in enumerate(metadata.non_spec_state_indices_tensor.tolist()[: len(starts) - 1]):
            mine = tokens[starts[at] : starts[at + 1]]
            zero = initial is not None and not bool(initial[at])
            run(mine, torch.zeros(_D, _D).double() if zero else before[block], [0] * (len(mine) - 1) + [block])
    return out


def _tokens(metadata: Any, drafts: bool) -> list[int]:
    """Where the tokens of requests with drafts lie, or those of the others: indices, and up to 0.11.0 a mask."""
    import torch

    if hasattr(metadata, "spec_token_indx"):
        return list((metadata.spec_token_indx if drafts else metadata.non_spec_token_indx).tolist())
    mask = metadata.spec_token_masks
    mask = torch.ones(int(metadata.spec_query_start_loc[-1]), dtype=torch.bool) if mask is None or not mask.numel() else mask
    return list((mask if drafts else ~mask).nonzero().flatten().tolist())
