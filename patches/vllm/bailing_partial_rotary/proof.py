"""Proof of vllm.bailing-partial-rotary: queries and keys that a layer hands to attention, and what compiled code is cached by.

Real: a config.json that the engine reads, and the layer with its rotary embedding. Stood in for: the projections, and the
config's class, which comes with the checkpoint. Spared: checkpoints that name the width, or rotate whole heads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, code_of, observe

from . import wrap

_MODEL = "vllm.model_executor.models.bailing_moe"
_HEADS, _KV_HEADS, _BASE, _LENGTH, _TYPE = 8, 2, 6e5, 2048, "attnfix_bailing"


class Case(NamedTuple):
    factor: float | None = 0.5
    rotary_dim: int | None = None
    head: int = 64
    #: Whether config.json leaves the head's size to be derived
    derived: bool = False
    #: Of queries and keys: none, or to a mean square of 1, with or without their mean
    norm: str | None = "root"
    #: Whether transformers has left the factor among the settings of RoPE alone
    moved: bool = False


class Proof(Cases):
    modules = (_MODEL, "vllm.config.vllm")
    may_lack = modules
    measure = "relative error of queries and keys, infinite where compiled code is cached as that of stock"
    needs = "BailingAttention.__init__: use_qk_norm"
    absent = "no model that rotates a part of a head"
    bug: tuple[Case, ...] = (
        Case(), Case(0.25, head=128), Case(0.5, norm=None, derived=True, head=32), Case(0.75, norm="mean"),
        Case(moved=True),
    )  # fmt: skip
    spared: tuple[Case, ...] = (Case(None, 32), Case(None), Case(1.0), Case(1.0, 64, norm=None), Case(None, 16, head=128))
    broken = {
        "twice the width is rotated": (wrap.width, lambda real, asked: 2 * asked),
        "half the width is rotated": (wrap.width, lambda real, asked: asked // 2),
        "the same width is rotated in all models": (wrap.width, lambda real, asked: 32),
        "settings of RoPE are not read": (wrap.factor_of, lambda real, config: getattr(config, "partial_rotary_factor", None)),
        "code that was compiled without is taken": (wrap.cache_key, lambda real, stock: stock),
    }

    def prepare(self) -> None:
        """Up to 0.12.0, which reads the factor, none has such a transformers beside it. From 0.23.0 on, that alone is wrong."""
        super().prepare()
        code = code_of(self.engine[_MODEL].BailingAttention.__init__)
        here = tuple(case for case in self.bug if not case.moved)
        if "partial_rotary_factor" in code.co_varnames:
            self.bug, self.spared = tuple(case._replace(moved=True) for case in here), self.spared + here
        elif "partial_rotary_factor" in code.co_names:
            self.bug = here

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm import rotary
        from attnfix.patches.lab.vllm.construction import DENSE, Worker
        from attnfix.patches.lab.vllm.layers import handed_over

        torch.manual_seed(seed)
        rotary.forget()
        wrap._code.is_changed = False  # what another case has left
        _register()
        model = {
            **DENSE, "architectures": ["BailingMoeV2ForCausalLM"], "model_type": _TYPE, "rope_theta": _BASE,
            "hidden_size": _HEADS * case.head, "head_dim": None if case.derived else case.head, "rms_norm_eps": 1e-6,
            "use_bias": False, "use_qkv_bias": False, "use_qk_norm": case.norm is not None, "use_rmsnorm": case.norm == "root",
            **({"partial_rotary_factor": case.factor} if case.factor else {}),
            **({"rotary_dim": case.rotary_dim} if case.rotary_dim else {}),
        }  # fmt: skip
        with Worker(model, backend="flash_attn.FlashAttentionBackend", context=_LENGTH, max_tokens=_LENGTH) as worker:
            server, config = worker.config, worker.config.model_config.hf_config
            if case.moved:
                del config.partial_rotary_factor
            layer = self.engine[_MODEL].BailingAttention(config, server.cache_config, prefix="model.layers.0.attention")
            key, corrected = server.compute_hash(), wrap._code.is_changed
            wrap._code.is_changed = False  # as it is where no layer was corrected
            if corrected and server.compute_hash() == key:
                return Observation(math.inf, "code is cached as that of stock")
            second = self.engine[_MODEL].BailingAttention(config, server.cache_config, prefix="model.layers.1.attention")
            assert second.rotary_emb is layer.rotary_emb
        positions = torch.cat([torch.randint(_LENGTH, (30,)), torch.tensor([0, _LENGTH - 1])])
        sizes = [_HEADS * case.head, _KV_HEADS * case.head, _KV_HEADS * case.head]
        rows = torch.randn(len(positions), sum(sizes))
        query, keys, _ = handed_over(layer, rows, rows, positions, fused="query_key_value", out="dense")
        width = case.rotary_dim or int(case.head * (case.factor or 1))
        right = [_turned(part, positions, case, width) for part in rows.double().split(sizes, 1)[:2]]
        return observe(torch.cat([query, keys], -1), torch.cat(right, -1))


def _turned(part: Any, positions: Any, case: Case, width: int) -> Any:
    """Queries or keys [tokens, heads × head] in float64, normalised, the first `width` dimensions of each head rotated."""
    import torch

    from attnfix.patches.lab.rotary import frequencies, rotated

    part = part.view(len(positions), -1, case.head)
    if case.norm == "mean":
        part = part - part.mean(-1, keepdim=True)
    if case.norm:
        part = part / (part.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    turned = rotated(part[..., :width], positions, frequencies(width, _BASE)).view(*part.shape[:2], width)
    return torch.cat([turned, part[..., width:]], -1).flatten(1)


def _register() -> None:
    """The class of a config.json that comes with the checkpoint: it keeps what it gets under the names that it has."""
    from transformers import AutoConfig, PretrainedConfig

    class Config(PretrainedConfig):
        model_type = _TYPE

        def __init__(self, rope_theta: float = _BASE, head_dim: int | None = None, **more: Any):
            self.rope_theta, self.rope_scaling, self.head_dim = rope_theta, None, head_dim
            for name in ("partial_rotary_factor", "rotary_dim"):
                if name in more:
                    setattr(self, name, more[name])
            super().__init__(**more)

    AutoConfig.register(_TYPE, Config, exist_ok=True)
