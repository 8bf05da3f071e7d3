"""One Mamba2 layer of an sglang server, its states and the requests that continue from them, for proofs.

Real: `ServerArgs` and `ModelConfig` of a NemotronH, the pool of Mamba states, `Mamba2AttnBackend` with its own `__init__`,
`init_forward_metadata` and `forward`, which also track the states of a prefix, and `MambaMixer2` with its layers and its Triton
kernels, in the interpreter. Played: the scheduler and the radix cache, which say which slots a request has and which of its
states are tracked, and have the pool copy the state that another request begins with.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.interpreter import take_any_mask
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, cumulative, device, observe, replaced

from . import absent, construction  # noqa: F401  absent: its stand-ins for imports are wanted here
from .engine import accepted, module

_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other
BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
MIXER = "sglang.srt.layers.attention.mamba.mamba"
_CONV = ("sglang.srt.layers.attention.mamba.causal_conv1d_triton", "sglang.kernels.ops.mamba.causal_conv1d_triton")

CHUNK, _HEADS, _DIM, _STATE, _WIDTH, _KERNEL = 16, 2, 16, 16, 32, 4
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": _WIDTH, "intermediate_size": 64,
    "hybrid_override_pattern": "M*", "num_hidden_layers": 2, "num_attention_heads": 1, "num_key_value_heads": 1,
    "head_dim": 32, "ssm_state_size": _STATE, "mamba_num_heads": _HEADS, "n_groups": 1, "mamba_head_dim": _DIM,
    "chunk_size": CHUNK, "conv_kernel": _KERNEL, "vocab_size": 64, "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}  # fmt: skip


class Request:
    """text: [tokens, hidden], of which `done` are computed; `row` of the request pool; slots of its state and its checkpoint,
    which holds the state behind `kept` tokens; `begins` is the slot of the state that it begins with, until that is copied."""

    def __init__(self, at: int, text: Any, done: int = 0, begins: int | None = None):
        self.row, self.slot, self.checkpoint = at, 2 * at + 1, 2 * at + 2
        self.text, self.done, self.begins, self.kept = text, done, begins, 0


class Server:
    """One Mamba2 layer and the states of its requests. `tracks`: whether states are kept for the radix cache; `dtype`: the
    layer's, float32 where it is not given."""

    def __init__(self, proof: Mamba2Layer, seed: int, tracks: bool = True, rows: int = 10, dtype: Any = None):
        import torch

        self.dtype = dtype or torch.float32
        self.proof, self.tracks, self.draw = proof, tracks, torch.Generator().manual_seed(seed)
        self.requests = 0
        params = proof.params
        kind = module("mem_cache.memory_pool").HybridReqToTokenPool
        self.pool = kind(**accepted(kind, {
            "size": rows, "mamba_size": 2 * rows + 4, "mamba_spec_state_size": rows, "max_context_len": 128,
            "device": device(), "enable_memory_saver": False, "cache_params": params, "mamba_layer_ids": params.layers,
            "enable_mamba_extra_buffer": tracks, "speculative_num_draft_tokens": None,
        }))  # fmt: skip
        self.states = self.pool.mamba_pool.mamba_cache
        for states in (*self.states.conv, self.states.temporal):
            states.copy_(torch.randn(states.shape, generator=self.draw))  # of requests long gone
        for row in range(rows):
            self.pool.req_index_to_mamba_index_mapping[row] = 2 * row + 1
        proof.served.req_to_token_pool = self.pool
        self.backend = proof.served.backend("hybrid_linear_attn_backend:Mamba2AttnBackend")
        self.mixer = self._mixer()

    def _mixer(self) -> Any:
        import torch

        mixer = self.proof.engine[MIXER].MambaMixer2(
            cache_params=self.proof.params, hidden_size=_WIDTH, use_conv_bias=True, use_bias=False, n_groups=1
        ).to(device(), self.dtype)  # fmt: skip
        mixer.A.data = mixer.A.data.float()  # whatever the model's dtype is
        with torch.no_grad():
            for name, weight in mixer.named_parameters():
                drawn = torch.randn(weight.shape, generator=self.draw)
                if name == "A":
                    drawn = -0.02 * drawn.abs()  # a state outlives the new tokens
                elif weight.dim() > 1:
                    drawn = drawn * weight[0].numel() ** -0.5
                weight.copy_(drawn)
        return mixer

    def fresh(self, tokens: int) -> Request:
        return self._request(self._text(tokens))

    def behind(self, first: Request, tokens: int) -> Request:
        """A request with the first tokens of another one, whose state the cache has."""
        import torch

        cached, slot = (first.kept, first.checkpoint) if self.tracks else (first.done, first.slot)
        return self._request(torch.cat([first.text[:cached], self._text(tokens)]), cached, slot)

    def _request(self, *args: Any) -> Request:
        self.requests += 1
        return Request(self.requests, *args)

    def _text(self, tokens: int) -> Any:
        import torch

        return torch.randn(tokens, _WIDTH, generator=self.draw).to(self.dtype)

    def prefill(self, rows: dict[Request, int], branches: dict[Request, int] | None = None) -> Observation:
        """So many tokens of each request in one batch; how right the outputs of the one that is worst are.

        `branches`: where in the text of a request the radix tree branches, whose state is tracked instead of the last one.
        """
        import torch

        for request in rows:
            if request.begins is not None:
                slots = (torch.tensor([slot], device=device()) for slot in (request.begins, request.slot))
                self.pool.mamba_pool.copy_from(*slots)
        batch = self._batch(rows, branches or {})
        news = [request.text[request.done : request.done + new] for request, new in rows.items()]
        tokens = torch.cat(news).to(device())
        with torch.no_grad():
            self.backend.init_forward_metadata(batch)
            outs = self.forward(tokens, batch).cpu().split([len(new) for new in news])
        seen = []
        for (request, new), own in zip(rows.items(), outs):
            request.done, request.begins = request.done + new, None
            seen.append(observe(own, self.reference(request.text[: request.done])[0][-new:]))
        return combine(*seen)

    def forward(self, tokens: Any, batch: Any) -> Any:
        """What the layer makes of the tokens of a batch, whose metadata the backend has."""
        import torch

        given = {"output": (out := torch.empty_like(tokens)), "layer_id": 0, "forward_batch": batch}
        returned = self.backend.forward(
            mixer=self.mixer, hidden_states=tokens, use_triton_causal_conv=True, **accepted(self.backend.forward, given)
        )
        return returned if returned is not None else out

    def cached(self, request: Request) -> Observation:
        """How right the states are that the radix cache would hand out as those behind `kept` tokens of the request."""
        held = (self.states.temporal[0, request.checkpoint], self.states.conv[0][0, request.checkpoint])
        wanted = self.reference(request.text[: request.kept])[1:]
        return combine(*(observe(state.cpu(), right) for state, right in zip(held, wanted)))

    def decode(self, requests: list[Request], graphs: Graphs | None = None) -> Observation:
        """One token of each request, in a graph or without; tracked where the text is whole chunks then."""
        import torch

        for request in requests:
            request.text, request.done = torch.cat([request.text[: request.done], self._text(1)]), request.done + 1
            if request.done % CHUNK == 0:
                request.kept = request.done
        tokens = torch.stack([request.text[-1] for request in requests]).to(device())
        with torch.no_grad():
            if graphs is not None:
                outs = graphs.replay(requests, tokens)
            else:
                self.backend.init_forward_metadata(batch := self._decode_batch(requests))
                outs = self.forward(tokens, batch)
        seen = zip(requests, outs.cpu(), strict=True)
        return combine(*(observe(own, self.reference(request.text)[0][-1]) for request, own in seen))

    def _decode_batch(self, requests: list[Request]) -> Any:
        import torch

        kind = module("model_executor.forward_batch_info")
        fields = {name: torch.tensor(values, device=device()) for name, values in decoding(requests).items()}
        return kind.ForwardBatch(
            forward_mode=kind.ForwardMode.DECODE, batch_size=len(requests), input_ids=torch.zeros_like(fields["seq_lens"]),
            seq_lens_sum=int(fields["seq_lens"].sum()), out_cache_loc=torch.zeros_like(fields["seq_lens"]),
            seq_lens_cpu=fields["seq_lens"].cpu(), **fields,
        )  # fmt: skip

    def _batch(self, rows: dict[Request, int], branches: dict[Request, int]) -> Any:
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
            seqlens = []
            for request, tokens in rows.items():
                seqlens.append(request.done + tokens if tokens >= CHUNK else -1)
                if request in branches:  # one more than where it is: then a state among the tokens is asked for
                    request.kept, seqlens[-1] = branches[request], branches[request] + 1
                elif tokens >= CHUNK:
                    request.kept = request.done + tokens // CHUNK * CHUNK
            fields |= {
                "mamba_track_mask": tensor([tokens >= CHUNK for tokens in new], torch.bool),
                "mamba_track_indices": tensor([request.checkpoint for request in rows]),
                "mamba_track_seqlens": tensor(seqlens),
            }
        return kind.ForwardBatch(**fields)

    def reference(self, text: Any) -> tuple[Any, Any, Any]:
        """The layer over a whole text in float64, token after token: outputs, state behind the last one, window behind it."""
        import torch
        from torch.nn.functional import rms_norm, silu, softplus

        w = {name: weight.detach().cpu().double() for name, weight in self.mixer.named_parameters()}
        inner = _HEADS * _DIM
        gate, mixed, dt = (text.double() @ w["in_proj.weight"].T).split([inner, inner + 2 * _STATE, _HEADS], -1)
        padded = torch.cat([torch.zeros(_KERNEL - 1, mixed.shape[1]).double(), mixed])
        windows = padded.unfold(0, _KERNEL, 1)  # [tokens, channels, kernel]
        window = padded[1 - _KERNEL :].T
        mixed = silu((windows * w["conv1d.weight"].reshape(-1, _KERNEL)).sum(-1) + w["conv1d.bias"])
        x, b, c = mixed.split([inner, _STATE, _STATE], -1)
        x, dt = x.view(-1, _HEADS, _DIM), softplus(dt + w["dt_bias"])
        state, outs = torch.zeros(_HEADS, _DIM, _STATE).double(), []
        for t in range(len(text)):
            state = state * (dt[t] * w["A"]).exp()[:, None, None] + (dt[t, :, None] * x[t])[..., None] * b[t]
            outs.append(state @ c[t] + w["D"][:, None] * x[t])
        y = torch.stack(outs).view(-1, inner) * silu(gate)
        return rms_norm(y, (inner,), w["norm.weight"], 1e-5) @ w["out_proj.weight"].T, state, window


def decoding(requests: list[Request]) -> dict[str, list]:
    """What the scheduler says of requests of which one token was just added."""
    return {
        "req_pool_indices": [request.row for request in requests],
        "seq_lens": [request.done for request in requests],
        "mamba_track_mask": [request.done % CHUNK == 0 for request in requests],
        "mamba_track_indices": [request.checkpoint for request in requests],
    }


class Graphs:
    """Decode graphs of some batch sizes, the largest first, as the engine's runner captures and replays them.

    The backend's functions are called with what the runner hands over: at capture slices of its buffers, at replay such slices,
    but all of the buffer of `mamba_track_indices`. A replay runs the layer again with the metadata of capture.
    """

    def __init__(self, server: Server, sizes: tuple[int, ...]):
        import torch

        self.server, self.graphs, most = server, {}, max(sizes)
        zeros = lambda *shape, dtype=torch.int64: torch.zeros(*shape, dtype=dtype, device=device())  # noqa: E731
        self.tokens = zeros(most, _WIDTH, dtype=server.dtype)
        self.buffers = {
            "req_pool_indices": zeros(most), "seq_lens": zeros(most) + 1, "mamba_track_mask": zeros(most, dtype=torch.bool),
            "mamba_track_indices": zeros(most),
        }  # fmt: skip
        server.backend.init_cuda_graph_state(most, most)
        for size in sorted(sizes, reverse=True):
            self.graphs[size] = self._captured(size)

    def _captured(self, size: int) -> tuple[Graph, Any]:
        import torch

        kind, backend = module("model_executor.forward_batch_info"), self.server.backend
        fields = {name: buffer[:size] for name, buffer in self.buffers.items()}
        batch = kind.ForwardBatch(
            forward_mode=kind.ForwardMode.DECODE, batch_size=size, input_ids=fields["seq_lens"], seq_lens_sum=size,
            out_cache_loc=fields["seq_lens"], seq_lens_cpu=torch.ones(size, dtype=torch.int64), **fields,
        )  # fmt: skip
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
        metadata, graph = backend.forward_metadata, Graph()

        def layer(tokens: Any) -> Any:
            with replaced(backend, "forward_metadata", metadata), torch.no_grad():
                return self.server.forward(tokens, batch)

        return graph, graph.recorded(layer)(self.tokens[:size])

    def replay(self, requests: list[Request], tokens: Any) -> Any:
        """In the smallest graph that holds them. Rows behind them are of nobody."""
        import torch

        rows, size = len(requests), min(size for size in self.graphs if size >= len(requests))
        self.buffers["seq_lens"].fill_(1)
        self.buffers["req_pool_indices"][rows:size] = 0
        self.buffers["mamba_track_mask"].fill_(False)
        self.buffers["mamba_track_indices"][rows:size] = 0
        for name, values in decoding(requests).items():
            self.buffers[name][:rows] = torch.tensor(values, device=device())
        self.tokens[:rows] = tokens
        kind = module("model_executor.forward_batch_info")
        self.server.backend.init_forward_metadata_out_graph(SimpleNamespace(
            batch_size=size, forward_mode=kind.ForwardMode.DECODE, spec_info=None, num_padding=size - rows,
            seq_lens_cpu=self.buffers["seq_lens"][:size].cpu(), mamba_track_indices=self.buffers["mamba_track_indices"],
            **{name: self.buffers[name][:size] for name in ("req_pool_indices", "seq_lens")},
        ))  # fmt: skip
        graph, outs = self.graphs[size]
        graph.replay()
        return outs[:rows]


class Mamba2Layer(proof.Proof):
    """A proof that runs one Mamba2 layer of a server. One process holds one server; `served` is what its objects read."""

    modules: tuple[str, ...] = (_QUANTIZATION, BACKEND, MIXER)
    may_lack: tuple[str, ...] = (BACKEND, MIXER)
    kernel = "interpreted"

    served: Any
    #: `mamba2_cache_params` of the model, with states of `dtypes`
    params: Any

    def prepare(self) -> None:
        if MIXER not in self.engine or "mamba_track_mask" not in Path(self.engine[MIXER].__file__).read_text():
            raise NoSuchPath("the states of Mamba2 layers are not tracked for the radix cache")
        import_kernels()
        mixers = self.engine[MIXER]
        if device() == "cpu":
            let_kernels_run_interpreted()
        with taken_for_cuda():
            self.served = construction.serve("--attention-backend", "flashinfer", config=NEMOTRON, draft=False)
        self.served.device = device()
        decode = vars(sys.modules[mixers.selective_state_update.__module__])
        if start := decode.get("initialize_mamba_selective_state_update_backend"):
            start(self.served.server_args)
        params = self.served.model_config.hf_config.mamba2_cache_params
        self.params = dataclasses.replace(params, dtype=self.dtypes(params.dtype))

    def dtypes(self, chosen: Any) -> Any:
        """The dtypes of states, a `Mamba2StateDType`; `chosen` is what the engine takes without its variables."""
        import torch

        return dataclasses.replace(chosen, conv=torch.float32, temporal=torch.float32)


def import_kernels() -> None:
    """The convolution's, which the mixer imports where CUDA is."""
    mixers: Any = importlib.import_module(MIXER)
    if not hasattr(mixers, "causal_conv1d_fn_triton"):
        conv = next(found for name in _CONV if (found := _module(name)))
        mixers.causal_conv1d_fn_triton = conv.causal_conv1d_fn
        mixers.causal_conv1d_update_triton = conv.causal_conv1d_update


def taken_for_cuda() -> Any:
    """While its options are read, the engine sees a CUDA machine: no other may track states."""
    override = getattr(module("runtime_context"), "override_platform", None)  # 0.5.19 and later
    return override(is_cuda=True) if override else replaced(module("server_args"), "is_cuda", lambda: True)


def let_kernels_run_interpreted() -> None:
    """What Triton's interpreter and the CPU lack: a mask that is a Python bool's `&`, a clock that chooses among configurations
    of a kernel, and a device to switch to."""
    import torch
    from triton.runtime.autotuner import Autotuner

    take_any_mask()
    Autotuner._bench = lambda *_, **__: [0.0]  # the first one
    torch.cpu.device = lambda *_: nullcontext()  # type: ignore[attr-defined]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
