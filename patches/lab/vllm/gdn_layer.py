"""The layer of Gated DeltaNet of Qwen3-Next and Qwen3.5 behind `gated_delta`'s builder, step by step: 0.10.2, 0.18.0-0.33.0.

Real: the builder of the layer's metadata, and the layer between its projections, by its own constructor. Emulated: what the
projections give, the norm, and the kernels at their public entries: a convolution with a state, and the gated delta rule. They
read and write states where they are told, as the engine's do, in float64. Compared are the outputs of all tokens.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab.proof import Cases, Observation, code_of, combine, observe, replaced

from . import gated_delta, kernels
from .construction import Worker
from .gated_delta import BUILDER, ROOM, Case, Request, Verify

_QWEN, _NEXT = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn", "vllm.model_executor.models.qwen3_next"
#: Where the layer lies: from 0.22.0, from 0.19.0, and before
LAYERS = {
    _QWEN: "QwenGatedDeltaNetAttention",
    "vllm.model_executor.layers.mamba.gdn_linear_attn": "GatedDeltaNetAttention",
    _NEXT: "Qwen3NextGatedDeltaNet",
}
_PREFIX, _CONTEXT = "model.layers.0.linear_attn", "vllm.forward_context"
_TOKENS, _HEADS, _SIZE, _WIDTH = 64, 2, 16, 4  # of a step; of values, beside one of keys; of a head; of the convolution
_CHANNELS = (2 + _HEADS) * _SIZE


class Server(gated_delta.Server):
    """x: what the convolution takes in, [tokens, channels]; a, b: gates, [tokens, heads]."""

    def __init__(self, of: Case, seed: int):
        import torch

        self.of, drafts = of, of.drafts
        super().__init__(drafts, False, seed)
        module, name = next((found, name) for path, name in LAYERS.items() if (found := kernels.found(path)))
        self.cls = getattr(module, name)
        kept = vars(module)
        self.kernels = {name: getattr(self, f"_{name}") for name in _KERNELS if name in kept}
        self.strided = "stride_cache_indices" in code_of(kept["causal_conv1d_fn"]).co_varnames
        platform: Any = import_module("vllm.platforms").current_platform
        with ExitStack() as stack:
            for owner in (torch.cuda, platform):
                stack.enter_context(replaced(owner, "current_device", lambda: "cpu"))
            stack.enter_context(replaced(module, "RMSNormGated", _none))
            stack.enter_context(self.worker)
            self.layer: Any = self._made()
        for parameter in self.layer.parameters():
            parameter.data = self._random(*parameter.shape)
        blocks = 1 + ROOM * self.columns
        self.conv, self.ssm = self._random(blocks, _WIDTH - 1 + drafts, _CHANNELS), self._random(blocks, _HEADS, _SIZE, _SIZE)
        self.x, self.a, self.b = (self._random(_TOKENS, size) for size in (_CHANNELS, _HEADS, _HEADS))
        rule, cache = getattr(self.cls, "_forward_core", None) or self.cls._forward, (self.conv, self.ssm)
        self.layer.kv_cache = [cache] if "virtual_engine" in code_of(rule).co_names else cache

    def _launched(self, **more: Any) -> Worker:
        worker = super()._launched(**more)
        if self.of.graphs:  # where there is a GPU, the engine does so by itself
            compilation = worker.config.compilation_config
            compilation.cudagraph_mode = type(compilation.cudagraph_mode).FULL_AND_PIECEWISE
            compilation.init_with_cudagraph_sizes([1, 2, 4, *range(8, 8 * ROOM + 1, 8)])
        return worker

    def _made(self) -> Any:
        config = self.worker.config
        names = "model_config", "cache_config", "quant_config", "speculative_config"
        parts = {name: getattr(config, name) for name in names}
        given = {"config": config.model_config.hf_text_config, "vllm_config": config, "prefix": _PREFIX, **parts}
        wanted = self.cls.__init__.__code__.co_varnames[: self.cls.__init__.__code__.co_argcount]
        return self.cls(**{name: value for name, value in given.items() if name in wanted})

    def step(self, plan: Mapping[str, int | Verify]) -> Observation:
        """How right the outputs are."""
        import torch

        requests = [self.requests.setdefault(name, Request(len(self.requests))) for name in plan]
        drafts = [self._drafts(new) for new in plan.values()]
        rows = [(each, new if isinstance(new, int) else count + 1) for each, new, count in zip(requests, plan.values(), drafts)]
        for request, new in zip(requests, plan.values()):
            request.asks(new)
        for known in (self.x, self.a, self.b):
            known.copy_(self._random(*known.shape) * 4)
        tokens = sum(new for _, new in rows)
        with self.worker:
            metadata = self.builder.build(0, self._batch(rows), **self._drafted(drafts))
            out = self._run_layer(metadata, tokens)
        return observe(out.view(tokens, _HEADS, _SIZE), torch.cat(self._right(rows, plan)))

    def _drafted(self, drafts: list[int]) -> dict[str, Any]:
        """What the runner says of a step in which some have drafts."""
        import torch

        if max(drafts) < 0:
            return {}
        counts, accepted = torch.tensor(drafts, dtype=torch.int32), self.accepted[: len(drafts)]
        if "num_draft_tokens" in code_of(self.builder.build).co_varnames:  # 0.10.2
            return {"num_accepted_tokens": accepted, "num_draft_tokens": counts.clamp(min=0)}
        return {"num_accepted_tokens": accepted, "num_decode_draft_tokens_cpu": counts}

    def _run_layer(self, metadata: Any, tokens: int) -> Any:
        import torch

        context: Any = import_module(_CONTEXT)
        forward = SimpleNamespace(attn_metadata={_PREFIX: metadata}, virtual_engine=0, no_compile_layers={})
        out = torch.zeros(_TOKENS, _HEADS * _SIZE).double()
        with ExitStack() as stack:
            stack.enter_context(replaced(context, "_forward_context", forward))
            for name, stands in self.kernels.items():
                stack.enter_context(replaced(import_module(self.cls.__module__), name, stands))
            if hasattr(self.cls, "_forward_core"):
                self.layer.__dict__["chunk_gated_delta_rule"] = self._chunk_gated_delta_rule
                self.layer._modules.pop("chunk_gated_delta_rule", None)
                self.layer._forward_core(self.x, self.b, self.a, out.view(_TOKENS, _HEADS, _SIZE))
            else:
                for name in ("in_proj", "norm", "out_proj"):
                    self.layer._modules.pop(name, None)
                vars(self.layer).update(in_proj=_none_of_two, norm=lambda out, gate: out, out_proj=_none_of_two)
                hidden = torch.cat([self.x, self.x[:, -_HEADS * _SIZE :], self.b, self.a], 1)  # with one head of keys
                self.layer._forward(hidden, out)
        return out[:tokens]

    def _right(self, rows: list[tuple[Request, int]], plan: Mapping[str, int | Verify]) -> list[Any]:
        """The right outputs; each request keeps its convolution's last inputs, and its state."""
        import torch

        at, outs = 0, []
        for (request, count), new in zip(rows, plan.values()):
            held, state = request.state or (
                torch.zeros(_WIDTH - 1, _CHANNELS).double(),
                torch.zeros(_HEADS, _SIZE, _SIZE).double(),
            )
            x, a, b = (known[at : at + count] for known in (self.x, self.a, self.b))
            weight, act = self.layer.conv1d.weight.view(_CHANNELS, _WIDTH), self.layer.activation
            q, k, v = _parts(_convolved(x, held, weight, act))
            out, states = _ruled(state, q, k, v, *_gates(self.layer.A_log, a, b, self.layer.dt_bias))
            outs.append(out)
            at += count
            kept = count
            if isinstance(new, Verify):
                kept = new.kept or int(torch.randint(1, count + 1, (1,), generator=self.draw))
            request.accepted = kept if isinstance(new, Verify) else 1
            request.state = torch.cat([held, x])[kept : kept + _WIDTH - 1], states[kept - 1]
            request.computed += kept
        return outs

    # What stands for the kernels, by their names in the layer's module

    def _causal_conv1d_fn(
        self, x: Any, weight: Any, bias: Any, conv_states: Any, query_start_loc: Any, cache_indices: Any,
        has_initial_state: Any, activation: str, **more: Any,
    ) -> Any:  # fmt: skip
        """x: [channels, tokens]. Up to 0.10.2 the kernel is not told how far apart indices lie, and takes them for dense."""
        import torch

        starts, out = query_start_loc.tolist(), torch.empty_like(x)
        rows = len(starts) - 1
        if not self.strided:
            cache_indices = cache_indices.as_strided((rows,), (1,))
        for block, begins, ends, goes_on in zip(cache_indices.tolist(), starts, starts[1:], has_initial_state.tolist()):
            held = conv_states[block, :, : _WIDTH - 1].T.clone() * goes_on
            out[:, begins:ends] = _convolved(x[:, begins:ends].T, held, weight, activation).T
            conv_states[block, :, : _WIDTH - 1] = torch.cat([held, x[:, begins:ends].T])[1 - _WIDTH :].T
        return out

    def _causal_conv1d_update(
        self, x: Any, conv_state: Any, weight: Any, bias: Any, activation: str, conv_state_indices: Any,
        num_accepted_tokens: Any = None, query_start_loc: Any = None, **more: Any,
    ) -> Any:  # fmt: skip
        """x: [rows, channels], [rows, channels, tokens], or [tokens, channels] with `query_start_loc`."""
        import torch

        out = torch.empty_like(x)
        for row, block in enumerate(conv_state_indices.tolist()):
            if query_start_loc is not None:
                place: Any = slice(*query_start_loc[row : row + 2].tolist())
                taken = x[place]
            else:
                place, taken = row, x[row].view(_CHANNELS, -1).T
            skipped = 0 if num_accepted_tokens is None else int(num_accepted_tokens[row]) - 1
            held = conv_state[block, :, skipped : skipped + _WIDTH - 1].T.clone()
            done = _convolved(taken, held, weight, activation)
            out[place] = done if query_start_loc is not None else done.T.reshape(x[row].shape)
            after = torch.cat([held, taken])[1 if num_accepted_tokens is not None else len(taken) :]
            conv_state[block, :, : len(after)] = after.T
        return out

    def _fused_gdn_gating(self, A_log: Any, a: Any, *gates: Any) -> Any:
        if len(gates) == 1:  # 0.10.2: that of the state alone
            return _gates(A_log, a, a, gates[0])[0]
        return tuple(gate.unsqueeze(0) for gate in _gates(A_log, a, *gates))

    def _fused_post_conv_prep(self, conv_output: Any, a: Any, b: Any, A_log: Any, dt_bias: Any, **more: Any) -> Any:
        return *_parts(conv_output), *_gates(A_log, a, b, dt_bias)

    def _fused_sigmoid_gating_delta_rule_update(self, A_log: Any, a: Any, b: Any, dt_bias: Any, **more: Any) -> Any:
        """The kernel reads the gates of token i at i, whatever lies behind them."""
        g, beta = _gates(A_log, a, b, dt_bias)
        return self._fused_recurrent_gated_delta_rule(g=g.unsqueeze(0), beta=beta.unsqueeze(0), **more)

    def _fused_recurrent_gated_delta_rule_packed_decode(
        self, mixed_qkv: Any, a: Any, b: Any, A_log: Any, dt_bias: Any, initial_state: Any, out: Any,
        ssm_state_indices: Any, **more: Any,
    ) -> None:  # fmt: skip
        parts = _parts(mixed_qkv), _gates(A_log, a, b, dt_bias)
        for row, block in enumerate(ssm_state_indices.tolist()):
            mine: Any = (known[row : row + 1] for part in parts for known in part)
            out.view(-1, _HEADS, _SIZE)[row : row + 1], (initial_state[block],) = _ruled(initial_state[block], *mine)

    def _fused_recurrent_gated_delta_rule(
        self, q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, cu_seqlens: Any, ssm_state_indices: Any,
        num_accepted_tokens: Any = None, **more: Any,
    ) -> Any:  # fmt: skip
        import torch

        out, starts = torch.zeros_like(v), cu_seqlens.tolist()
        for row, (begins, ends) in enumerate(pairwise(starts)):
            blocks = ssm_state_indices[row].view(-1).tolist()
            read = blocks[0 if num_accepted_tokens is None else int(num_accepted_tokens[row]) - 1]
            mine: Any = (known[0, begins:ends] for known in (q, k, v, g, beta))
            out[0, begins:ends], states = _ruled(initial_state[read], *mine)
            for block, state in zip(blocks, states):
                initial_state[block] = state
        return out, initial_state

    def _chunk_gated_delta_rule(
        self, q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, cu_seqlens: Any, **more: Any
    ) -> Any:
        import torch

        out, last, starts = torch.zeros_like(v), initial_state.clone(), cu_seqlens.tolist()
        for row, (begins, ends) in enumerate(pairwise(starts)):
            mine: Any = (known[0, begins:ends] for known in (q, k, v, g, beta))
            out[0, begins:ends], states = _ruled(initial_state[row], *mine)
            last[row] = states[-1]
        return out, last


_KERNELS = (
    "causal_conv1d_fn", "causal_conv1d_update", "fused_gdn_gating", "fused_post_conv_prep", "chunk_gated_delta_rule",
    "fused_sigmoid_gating_delta_rule_update", "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gated_delta_rule_packed_decode",
)  # fmt: skip


def _convolved(x: Any, held: Any, weight: Any, activation: str) -> Any:
    """x: [tokens, channels] behind the last inputs `held`, [width - 1, channels]; weight: [channels, width]."""
    import torch

    assert activation == "silu"
    windows = torch.cat([held, x]).unfold(0, _WIDTH, 1)  # [tokens, channels, width]
    return torch.nn.functional.silu((windows * weight).sum(-1))


def _parts(mixed: Any) -> tuple[Any, Any, Any]:
    """q, k: [tokens, 1, size]; v: [tokens, heads, size]."""
    q, k, v = mixed.split([_SIZE, _SIZE, _HEADS * _SIZE], -1)
    return q.unsqueeze(1), k.unsqueeze(1), v.reshape(-1, _HEADS, _SIZE)


def _gates(A_log: Any, a: Any, b: Any, dt_bias: Any) -> tuple[Any, Any]:
    import torch

    return -A_log.exp() * torch.nn.functional.softplus(a + dt_bias), b.sigmoid()


def _ruled(state: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> tuple[Any, list[Any]]:
    """Outputs of the delta rule, whose keys and queries are normalised, and the state after each token: [heads, value, key]."""
    import torch

    outs, states = [], []
    for token in range(len(v)):
        key, query = (torch.nn.functional.normalize(one[token], dim=-1) for one in (k, q))
        state = state * g[token].exp()[:, None, None]
        new = (v[token] - (state * key[:, None]).sum(-1)) * beta[token][:, None]
        state = state + new[..., None] * key[:, None]
        outs.append((state * query[:, None]).sum(-1))
        states.append(state)
    return torch.stack(outs), states


def _none(*args: Any, **more: Any) -> Any:
    """A norm that does nothing."""
    import torch

    return torch.nn.Identity()


def _none_of_two(x: Any) -> tuple[Any, None]:
    return x, None


class GatedDeltaLayer(Cases):
    """Base of the proofs. A case is `gated_delta.case`; with graphs (0.10.2), the builder has their buffers, and the layer runs
    eagerly. A server that an error ends is infinitely wrong.
    """

    modules: tuple[str, ...] = (BUILDER, *LAYERS)
    may_lack: tuple[str, ...] = (BUILDER, *LAYERS)

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        server = Server(case, seed)
        try:
            return combine(*(server.step(plan) for plan in case.steps))
        except (AssertionError, IndexError, RuntimeError) as ended:  # of a layer that is given other shapes than it expects
            return Observation(math.inf, hashlib.sha256(str(ended).encode()).hexdigest())
