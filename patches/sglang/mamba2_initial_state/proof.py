"""Proof of sglang.mamba2-initial-state: few new tokens behind a cached prefix, through a Mamba2 layer whose states are tracked.

Real: `ServerArgs` and `ModelConfig` of a NemotronH, the pool of Mamba states, `Mamba2AttnBackend` with its own `__init__`,
`init_forward_metadata` and `forward`, which also track the states of a prefix, and `MambaMixer2` with its layers and its Triton
kernels, in the interpreter. Played: the scheduler and the radix cache, which say which slots a request has and which of its
states are tracked, and have the pool copy the state that another request begins with.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from attnfix.patches.proofkit import proof
from attnfix.patches.proofkit.proof import NoSuchPath, Observation, combine, cumulative, device, observe, replaced
from attnfix.patches.proofkit.sglang import construction
from attnfix.patches.proofkit.sglang.engine import accepted, module
from attnfix.patches.sglang.hybrid_chunk_metadata.proof import _NotHere  # its stand-ins for imports are wanted here, too

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_MIXER = "sglang.srt.layers.attention.mamba.mamba"
_CONV = ("sglang.srt.layers.attention.mamba.causal_conv1d_triton", "sglang.kernels.ops.mamba.causal_conv1d_triton")

if importlib.util.find_spec("cuda") is None:  # 0.5.8 imports a kernel of another layer that needs it
    _kernel = ModuleType("sglang.jit_kernel.cutedsl_gdn")
    _kernel.cutedsl_fused_sigmoid_gating_delta_rule_update = _NotHere  # type: ignore[attr-defined]
    sys.modules.setdefault(_kernel.__name__, _kernel)

_CHUNK, _HEADS, _DIM, _STATE, _WIDTH, _KERNEL = 16, 4, 16, 16, 64, 4
_NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": _WIDTH, "intermediate_size": 64,
    "hybrid_override_pattern": "M*", "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
    "head_dim": 32, "ssm_state_size": _STATE, "mamba_num_heads": _HEADS, "n_groups": 1, "mamba_head_dim": _DIM,
    "chunk_size": _CHUNK, "conv_kernel": _KERNEL, "vocab_size": 64, "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
_CACHED = 2 * _CHUNK  # tokens of the prefix that requests share
_SLOTS, _ROWS = 24, 10


class _Request:
    """text: [tokens, hidden], of which `done` are computed; `row` of the request pool; slots of its state and its checkpoint;
    `begins` is the slot of the state that it begins with, until that is copied."""

    def __init__(self, at: int, text: Any, done: int = 0, begins: int | None = None):
        self.row, self.slot, self.checkpoint = at, 2 * at + 1, 2 * at + 2
        self.text, self.done, self.begins = text, done, begins


class _Server:
    """One Mamba2 layer and the states of its requests. `tracks`: whether states are kept for the radix cache."""

    def __init__(self, proof: Proof, seed: int, tracks: bool = True):
        import torch

        self.proof, self.tracks, self.draw = proof, tracks, torch.Generator().manual_seed(seed)
        self.requests = 0
        params = proof.params
        kind = module("mem_cache.memory_pool").HybridReqToTokenPool
        self.pool = kind(**accepted(kind, {
            "size": _ROWS, "mamba_size": _SLOTS, "mamba_spec_state_size": _ROWS, "max_context_len": 128, "device": device(),
            "enable_memory_saver": False, "cache_params": params, "mamba_layer_ids": params.layers,
            "enable_mamba_extra_buffer": tracks, "speculative_num_draft_tokens": None,
        }))  # fmt: skip
        cache = self.pool.mamba_pool.mamba_cache
        for states in (*cache.conv, cache.temporal):
            states.copy_(torch.randn(states.shape, generator=self.draw))  # of requests long gone
        for row in range(_ROWS):
            self.pool.req_index_to_mamba_index_mapping[row] = 2 * row + 1
        proof.served.req_to_token_pool = self.pool
        self.backend = proof.served.backend("hybrid_linear_attn_backend:Mamba2AttnBackend")
        self.mixer = self._mixer()

    def _mixer(self) -> Any:
        import torch

        mixer = self.proof.engine[_MIXER].MambaMixer2(
            cache_params=self.proof.params, hidden_size=_WIDTH, use_conv_bias=True, use_bias=False, n_groups=1
        ).to(device(), torch.float32)  # fmt: skip
        with torch.no_grad():
            for name, weight in mixer.named_parameters():
                drawn = torch.randn(weight.shape, generator=self.draw)
                if name == "A":
                    drawn = -0.02 * drawn.abs()  # a state outlives the new tokens
                elif weight.dim() > 1:
                    drawn = drawn * weight[0].numel() ** -0.5
                weight.copy_(drawn)
        return mixer

    def fresh(self, tokens: int) -> _Request:
        return self._request(self._text(tokens))

    def behind(self, first: _Request, tokens: int) -> _Request:
        """A request with the first tokens of another one, whose state the cache has."""
        import torch

        text = torch.cat([first.text[:_CACHED], self._text(tokens)])
        return self._request(text, _CACHED, first.checkpoint if self.tracks else first.slot)

    def _request(self, *args: Any) -> _Request:
        self.requests += 1
        return _Request(self.requests, *args)

    def _text(self, tokens: int) -> Any:
        import torch

        return torch.randn(tokens, _WIDTH, generator=self.draw)

    def prefill(self, rows: dict[_Request, int]) -> Observation:
        """So many tokens of each request in one batch; how right the outputs of the one that is worst are."""
        import torch

        for request in rows:
            if request.begins is not None:
                slots = (torch.tensor([slot], device=device()) for slot in (request.begins, request.slot))
                self.pool.mamba_pool.copy_from(*slots)
        batch = self._batch(rows)
        news = [request.text[request.done : request.done + new] for request, new in rows.items()]
        tokens = torch.cat(news).to(device())
        with torch.no_grad():
            self.backend.init_forward_metadata(batch)
            given = {"output": (out := torch.empty_like(tokens)), "layer_id": 0, "forward_batch": batch}
            returned = self.backend.forward(
                mixer=self.mixer, hidden_states=tokens, use_triton_causal_conv=True,
                **accepted(self.backend.forward, given),
            )  # fmt: skip
        outs = (returned if returned is not None else out).cpu().split([len(new) for new in news])
        seen = []
        for (request, new), own in zip(rows.items(), outs):
            request.done, request.begins = request.done + new, None
            seen.append(observe(own, self._reference(request.text[: request.done])[-new:]))
        return combine(*seen)

    def _batch(self, rows: dict[_Request, int]) -> Any:
        """What the scheduler makes of the requests; it tracks those that compute a chunk or more."""
        import torch

        kind = module("model_executor.forward_batch_info")
        new, done = list(rows.values()), [request.done for request in rows]
        tensor = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        lens = [a + b for a, b in zip(done, new)]
        fields = {
            "forward_mode": kind.ForwardMode.EXTEND, "batch_size": len(rows), "input_ids": tensor([0] * sum(new)),
            "req_pool_indices": tensor([request.row for request in rows]), "seq_lens": tensor(lens), "seq_lens_sum": sum(lens),
            "out_cache_loc": tensor([0] * sum(new)), "seq_lens_cpu": torch.tensor(lens), "extend_num_tokens": sum(new),
            "extend_seq_lens": tensor(new, torch.int32), "extend_seq_lens_cpu": new,
            "extend_prefix_lens": tensor(done, torch.int32), "extend_prefix_lens_cpu": done,
            "extend_start_loc": cumulative(new)[:-1].to(device()),
        }  # fmt: skip
        if self.tracks:
            fields |= {
                "mamba_track_mask": tensor([tokens >= _CHUNK for tokens in new], torch.bool),
                "mamba_track_indices": tensor([request.checkpoint for request in rows]),
                "mamba_track_seqlens": tensor([length if n >= _CHUNK else -1 for length, n in zip(lens, new)]),
            }
        return kind.ForwardBatch(**fields)

    def _reference(self, text: Any) -> Any:
        """The layer over a whole text in float64, token after token."""
        import torch
        from torch.nn.functional import rms_norm, silu, softplus

        w = {name: weight.detach().cpu().double() for name, weight in self.mixer.named_parameters()}
        inner = _HEADS * _DIM
        gate, mixed, dt = (text.double() @ w["in_proj.weight"].T).split([inner, inner + 2 * _STATE, _HEADS], -1)
        padded = torch.cat([torch.zeros(_KERNEL - 1, mixed.shape[1]).double(), mixed])
        windows = padded.unfold(0, _KERNEL, 1)  # [tokens, channels, kernel]
        mixed = silu((windows * w["conv1d.weight"].reshape(-1, _KERNEL)).sum(-1) + w["conv1d.bias"])
        x, b, c = mixed.split([inner, _STATE, _STATE], -1)
        x, dt = x.view(-1, _HEADS, _DIM), softplus(dt + w["dt_bias"])
        state, outs = torch.zeros(_HEADS, _DIM, _STATE).double(), []
        for t in range(len(text)):
            state = state * (dt[t] * w["A"]).exp()[:, None, None] + (dt[t, :, None] * x[t])[..., None] * b[t]
            outs.append(state @ c[t] + w["D"][:, None] * x[t])
        y = torch.stack(outs).view(-1, inner) * silu(gate)
        return rms_norm(y, (inner,), w["norm.weight"], 1e-5) @ w["out_proj.weight"].T


class Proof(proof.Proof):
    modules = (_QUANTIZATION, _BACKEND, _MIXER)
    may_lack = (_BACKEND, _MIXER)
    kernel = "interpreted"

    def prepare(self) -> None:
        import torch

        if _MIXER not in self.engine or "mamba_track_mask" not in Path(self.engine[_MIXER].__file__).read_text():
            raise NoSuchPath("the states of Mamba2 layers are not tracked for the radix cache")
        mixers = self.engine[_MIXER]
        if not hasattr(mixers, "causal_conv1d_fn_triton"):  # imported where CUDA is
            conv = next(found for name in _CONV if (found := _module(name)))
            mixers.causal_conv1d_fn_triton = conv.causal_conv1d_fn
        if device() == "cpu":
            _let_kernels_run_interpreted()
        with _taken_for_cuda():
            self.served = construction.serve("--attention-backend", "flashinfer", config=_NEMOTRON, draft=False)
        self.served.device = device()
        params = self.served.model_config.hf_config.mamba2_cache_params
        exact = dataclasses.replace(params.dtype, conv=torch.float32, temporal=torch.float32)
        self.params = dataclasses.replace(params, dtype=exact)

    def scenario(self, seed: int) -> Observation:
        """A few new tokens behind a prefix, beside other requests; prompts whose last part is short; and who comes after."""
        server = _Server(self, seed)
        first = server.fresh(_CACHED + 5)
        seen = [server.prefill({first: _CACHED + 5})]
        hit, long, last, other = (
            server.behind(first, 12), server.behind(first, _CHUNK + 3), server.fresh(_CHUNK + 7), server.fresh(_CACHED + 3)
        )  # fmt: skip
        seen += [server.prefill({other: _CACHED + 3, hit: 5, server.fresh(4): 4, last: _CHUNK, long: _CHUNK + 3})]
        seen += [server.prefill({hit: 7, last: 7, server.behind(other, 6): 6}), server.prefill({server.behind(first, 3): 3})]
        return combine(*seen)

    def control(self, seed: int) -> Observation:
        """As much as a chunk behind a prefix, fewer tokens behind none; and the scenario where no states are tracked."""
        server = _Server(self, seed)
        first = server.fresh(_CACHED + 5)
        seen = [server.prefill({first: _CACHED + 5})]
        seen += [server.prefill({server.fresh(4): 4, server.behind(first, _CHUNK): _CHUNK})]
        server = _Server(self, seed, tracks=False)
        first = server.fresh(_CACHED)
        seen += [server.prefill({first: _CACHED}), server.prefill({server.behind(first, 5): 5, server.fresh(3): 3})]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.without_mask

        def first_alone(batch: Any) -> Any:
            view = real(batch)
            view.mamba_track_mask = batch.mamba_track_mask.clone()
            view.mamba_track_mask[: len(view.mamba_track_mask) // 2] = True
            return view

        def for_good(batch: Any) -> Any:
            batch.mamba_track_mask = None
            return batch

        def fresh_ones_too(batch: Any) -> Any:
            view = real(batch)
            view.extend_prefix_lens = batch.extend_prefix_lens + 1
            return view

        return {
            "the mask is seen": replaced(wrap, "without_mask", lambda batch: batch),
            "some requests are missed": replaced(wrap, "without_mask", first_alone),
            "the states of the batch are tracked no more": replaced(wrap, "without_mask", for_good),
            "fresh requests begin with a state, too": replaced(wrap, "without_mask", fresh_ones_too),
        }


def _taken_for_cuda() -> Any:
    """While its options are read, the engine sees a CUDA machine: no other may track states."""
    override = getattr(module("runtime_context"), "override_platform", None)  # 0.5.19 and later
    return override(is_cuda=True) if override else replaced(module("server_args"), "is_cuda", lambda: True)


def _let_kernels_run_interpreted() -> None:
    """What Triton's interpreter and the CPU lack: a mask that is a Python bool's `&`, a clock that chooses among configurations
    of a kernel, and a device to switch to."""
    import torch
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpreterBuilder

    store = InterpreterBuilder.create_masked_store

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, cache: Any) -> Any:
        mask.data = mask.data.astype(bool)
        return store(self, pointers, value, mask, cache)

    InterpreterBuilder.create_masked_store = masked_store
    Autotuner._bench = lambda *_, **__: [0.0]  # the first one
    torch.cpu.device = lambda *_: nullcontext()  # type: ignore[attr-defined]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
