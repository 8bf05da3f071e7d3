"""Proof of sglang.gated-split-views: prompts and verified drafts of Qwen3.5's linear layers, by heads of the model.

Spared is a decode of Kimi-Linear, too: its `b` is a view, and the kernel is told so.

Real: the layer with its constructor, its projections and what it makes of them, and the engine's Triton kernels of the gates.
Played: the backend's call between them, without the convolution, and without the kernel behind the gates of a prompt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.patches.lab import interpreter
from attnfix.patches.lab.proof import Cases, Observation, cumulative, observe
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from . import wrap

_QWEN, _CONFIG = "sglang.srt.models.qwen3_5", "sglang.srt.configs.qwen3_5"
_GDN, _KERNEL, _KIMI = (
    f"sglang.srt.layers.attention.linear.{name}" for name in ("gdn_backend", "kernels.gdn_triton", "kernels.kda_triton")
)
#: The targets' own modules, which older releases have without the others
_GATES = tuple(
    f"sglang.{home}.attention.fla.{name}"
    for home in ("srt.layers", "kernels.ops")
    for name in ("fused_gdn_gating", "fused_sigmoid_gating_recurrent")
)
_WIDTH, _DIM = 32, 16


class Case(NamedTuple):
    """heads: of keys and of values; drafts: of a request whose drafts are verified, 0 for a prompt of so many tokens.

    kimi: requests of Kimi-Linear decode a token each.
    """

    heads: tuple[int, int]
    tokens: int
    drafts: int = 0
    dtype: str = "float32"
    kimi: bool = False


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _GDN, _KERNEL, _KIMI, _QWEN, _CONFIG, *_GATES)
    may_lack = modules
    kernel = "interpreted"
    needs = f"{_QWEN}:Qwen3_5GatedDeltaNet.create_ba_proj"
    absent = "Qwen3.5 projects each gate by itself"
    bug = (
        Case((2, 6), 5), Case((4, 12), 19, dtype="bfloat16"), Case((1, 3), 2), Case((2, 6), 6, drafts=3),
        Case((1, 5), 8, drafts=4, dtype="bfloat16"),
    )  # fmt: skip
    spared = (
        Case((2, 4), 5), Case((2, 2), 19, dtype="bfloat16"), Case((2, 6), 1), Case((1, 4), 6, drafts=3),
        Case((2, 4), 8, drafts=4), Case((2, 2), 5, kimi=True), Case((3, 3), 4, kimi=True),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (wrap.dense, lambda real, gate: gate),
        "rows are those of other tokens": (wrap.dense, lambda real, gate: real(gate).roll(1, 0)),
        "heads are those of other heads": (wrap.dense, lambda real, gate: real(gate).roll(1, 1)),
    }

    def prepare(self) -> None:
        super().prepare()
        interpreter.take_any_mask()
        self.served = construction.serve("--attention-backend", "triton", draft=False)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw, dtype = torch.Generator().manual_seed(seed), getattr(torch, case.dtype)
        if case.kimi:
            return self._kimi(case, draw)
        layer = self._layer(case.heads, draw, dtype)
        hidden = torch.randn(case.tokens, _WIDTH, generator=draw).to(dtype)
        layer.attn, layer.norm = attention = _modules(self.engine, case, layer)
        with torch.no_grad():
            layer(hidden, self.served.forward_batch("EXTEND", **_NONE))
        return observe(attention[0].seen, self._exact(layer, case, hidden))

    def _kimi(self, case: Case, draw: Any) -> Observation:
        """Each request's step from its state, [values, keys] per head."""
        import torch

        heads, tokens = case.heads[0], case.tokens
        random = lambda *shape: torch.randn(*shape, generator=draw)  # noqa: E731
        q, k, v = (random(1, tokens, heads, _DIM) for _ in range(3))
        a, b = random(1, tokens, heads * _DIM), random(1, tokens, 3 * heads)[..., heads : 2 * heads]
        decay, bias, states = random(heads), random(heads * _DIM), random(tokens, heads, _DIM, _DIM)
        g = (-decay.double().exp()[:, None] * torch.nn.functional.softplus((a + bias).double().view(tokens, heads, _DIM))).exp()
        query, key = ((x[0].double() / x[0].double().norm(dim=-1, keepdim=True))[..., None] for x in (q, k))
        state = states.double() * g[:, :, None]
        new = (v[0].double() - (state @ key)[..., 0]) * b[0].double().sigmoid()[..., None]
        exact = ((state + new[..., None] * key.mT) @ query)[..., 0] * _DIM**-0.5
        slots = torch.arange(tokens, dtype=torch.int32)
        seen = self.engine[_KIMI].TritonKDAKernel().decode(
            q, k, v, a, b, A_log=decay, dt_bias=bias, ssm_states=states, cache_indices=slots,
            query_start_loc=cumulative([1] * tokens),
        )  # fmt: skip
        return observe(seen[0], exact)

    def _layer(self, heads: tuple[int, int], draw: Any, dtype: Any) -> Any:
        import torch

        config = self.engine[_CONFIG].Qwen3_5TextConfig(
            hidden_size=_WIDTH, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            num_hidden_layers=4, full_attention_interval=4, max_position_embeddings=64, linear_num_key_heads=heads[0],
            linear_num_value_heads=heads[1], linear_key_head_dim=_DIM, linear_value_head_dim=_DIM, torch_dtype=dtype,
        )  # fmt: skip
        former = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            layer = self.engine[_QWEN].Qwen3_5GatedDeltaNet(config, layer_id=0)
        finally:
            torch.set_default_dtype(former)
        for weight in layer.parameters():
            weight.data.copy_(torch.randn(weight.shape, generator=draw) * weight.shape[-1] ** -0.5)
        return layer

    def _exact(self, layer: Any, case: Case, hidden: Any) -> Any:
        """The gates of each token in float64, or what its requests' steps give."""
        import torch

        b, a = _projected(layer.in_proj_ba, hidden).chunk(2, -1)
        g, beta = -layer.A_log.double().exp() * torch.nn.functional.softplus(a + layer.dt_bias.double()), b.sigmoid()
        if not case.drafts:
            return torch.cat([g, beta], -1)
        keys, values = case.heads
        sizes = [keys * _DIM, keys * _DIM, values * _DIM, values * _DIM]
        q, k, v, _ = (part.unflatten(-1, (-1, _DIM)) for part in _projected(layer.in_proj_qkvz, hidden).split(sizes, -1))
        q, k = ((x / x.norm(dim=-1, keepdim=True)).repeat_interleave(values // keys, 1) for x in (q, k))
        outs = []
        for at in range(case.tokens):
            if at % case.drafts == 0:
                state = torch.zeros(values, _DIM, _DIM).double()
            state = state * g[at].exp()[:, None, None]
            new = (v[at] - (state * k[at][..., None]).sum(1)) * beta[at][:, None]
            state = state + k[at][..., None] * new[:, None]
            outs.append((state * q[at][..., None]).sum(1) * _DIM**-0.5)
        return torch.stack(outs)


#: A batch says nothing that the layer asks for
_NONE: dict[str, Any] = dict.fromkeys(
    ("batch_size", "input_ids", "req_pool_indices", "seq_lens", "seq_lens_sum", "out_cache_loc")
)


def _projected(linear: Any, hidden: Any) -> Any:
    """As the layer rounds it."""
    return (hidden @ linear.weight.T).double()


def _modules(engine: dict[str, Any], case: Case, layer: Any) -> tuple[Any, Any]:
    """In the place of attention, which keeps what is `seen`, and of the norm behind it."""
    import torch

    keys, values = case.heads

    class Attention(torch.nn.Module):
        seen: Any

        def forward(self, forward_batch: Any, mixed_qkv: Any, a: Any, b: Any) -> Any:
            out = torch.zeros(case.tokens, values, _DIM, dtype=mixed_qkv.dtype)
            if not case.drafts:
                g, beta = engine[_GDN].fused_gdn_gating(layer.A_log, a, b, layer.dt_bias)
                self.seen = torch.cat([g[0], beta[0]], -1)
                return out
            requests = case.tokens // case.drafts
            sizes = [keys * _DIM, keys * _DIM, values * _DIM]
            q, k, v = (part.unflatten(-1, (-1, _DIM))[None] for part in mixed_qkv.split(sizes, -1))
            slots = torch.arange(requests, dtype=torch.int32)
            self.seen = engine[_KERNEL].TritonGDNKernel().target_verify(
                layer.A_log, layer.dt_bias, q, k, v, a, b, ssm_states=torch.zeros(requests, values, _DIM, _DIM),
                cache_indices=slots, query_start_loc=cumulative([case.drafts] * requests),
                intermediate_states_buffer=torch.zeros(requests, case.drafts, values, _DIM, _DIM),
                intermediate_state_indices=slots, cache_steps=case.drafts, retrieve_parent_token=None,
            )[0]  # fmt: skip
            return out

    class Norm(torch.nn.Module):
        def forward(self, x: Any, z: Any) -> Any:
            return x

    return Attention(), Norm()
