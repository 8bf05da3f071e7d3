"""Proof of vllm.draft-rotary-table: a drafter that Model Runner V2 makes and loads, at positions up to the target's length.

Real: both configs, the speculator, the loader, the drafter and its rotary embedding. Stood in for: weights, which are the
engine's dummy ones, and the target, whose embedding and head the drafter shares. Spared: drafters whose table is long enough,
and a RoPE type whose frequencies depend on the length, at positions within it.
"""

from __future__ import annotations

import math
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced

from . import wrap

_CONFIG, _V2 = "vllm.config.speculative", "vllm.v1.worker.gpu.spec_decode"
_DFLASH = f"{_V2}.dflash.utils"
_LENGTH = 1024
#: Method -> the drafter's architecture, and its module
_MODELS = {
    "eagle": ("EagleLlamaForCausalLM", "llama_eagle"),
    "eagle3": ("Eagle3LlamaForCausalLM", "llama_eagle3"),
    "dflash": ("DFlashQwen3ForCausalLM", "qwen3_dflash"),
}
_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1]},  # nosec B105
}  # fmt: skip
_DYNAMIC = "dynamic", {"alpha": 2.0, "factor": 1.0}
_NTK = "ntk", {"factor": 8.0}
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


class Case(NamedTuple):
    method: str
    #: `max_position_embeddings` of the drafter's config.json
    own: int = 256
    rope: tuple[str, dict[str, Any]] = ("default", {})
    #: Positions up to here
    upto: int = _LENGTH
    where: str = ""


#: Releases in which the engine itself gives EAGLE the target's length
_STOCK_EAGLE = f"no {_CONFIG}:SpeculativeConfig._maybe_override_draft_max_position_embeddings"
_HAS_DFLASH = f"{_DFLASH}:load_dflash_model"


class Proof(Cases):
    modules = (_V2, _CONFIG, _DFLASH)
    may_lack = modules
    kernel = "none"
    measure = "relative error of rotated queries, infinite where a position has no row"
    needs = "init_speculator"
    absent = "no Model Runner V2"
    bug = (
        Case("eagle3", where=_STOCK_EAGLE),
        Case("eagle", own=1023, where=_STOCK_EAGLE),
        Case("eagle3", rope=("llama3", _LLAMA3), where=_STOCK_EAGLE),
        Case("eagle3", rope=("linear", {"factor": 2.0}), where=_STOCK_EAGLE),
        Case("eagle3", rope=_NTK, where=_STOCK_EAGLE),
        Case("dflash", where=_HAS_DFLASH),
        Case("dflash", own=1000, rope=("llama3", _LLAMA3), where=_HAS_DFLASH),
    )
    spared = (
        Case("eagle3", own=_LENGTH),
        Case("eagle", own=4096),
        Case("eagle3", rope=("linear", {"factor": 4.0})),
        Case("eagle3", rope=_DYNAMIC, upto=256, where=_STOCK_EAGLE),
        Case("dflash", own=_LENGTH, where=_HAS_DFLASH),
        Case("dflash", rope=_DYNAMIC, upto=256, where=_HAS_DFLASH),
    )
    around = {
        "Write the target's length as `max_position_embeddings` into the drafter's config.json": {"written": _LENGTH},
    }
    broken = {
        "the table stays short": (wrap.table_rows, lambda real, length: min(length, 256)),
        "the last position has no row": (wrap.table_rows, lambda real, length: real(length) - 1),
        "code that was compiled for the short table is taken": (wrap.cache_key, lambda real, stock, length: stock),
    }
    #: Later ones have the drafter's config.json in the hash
    broken_where = {"code that was compiled for the short table is taken": _STOCK_EAGLE}
    written: int | None = None

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        from attnfix.patches.lab.vllm.rotary import rotated

        torch.manual_seed(seed)
        worker = self._worker(case)
        with worker, replaced(torch.cuda, "graph_pool_handle", lambda: None), _no_accelerator():
            rotary = self._rotary(worker.config)
        if rotary is None:
            return Observation(math.inf, "code is cached as that of another table")
        positions = torch.cat([torch.randint(case.upto, (30,)), torch.tensor([0, case.upto - 1])])
        query = torch.randn(len(positions), 2 * 64, dtype=torch.bfloat16)
        right = rotated(query.view(-1, 2, 64), positions, _frequencies(case))
        try:
            out = rotary.forward_native(positions, query.clone(), query[:, :64].clone())[0]
        except IndexError:
            return Observation(math.inf, "a position has no row")
        return observe(out, right)

    def _worker(self, case: Case) -> Any:
        from attnfix.patches.lab.vllm.construction import DENSE, Worker
        from attnfix.patches.lab.vllm.models import folder_of

        kind, more = case.rope
        drafter = {
            **DENSE, "num_hidden_layers": 1, "draft_vocab_size": 128, "max_position_embeddings": self.written or case.own,
            "rope_scaling": {"rope_type": kind, **more} if more else None, **(_QWEN3 if case.method == "dflash" else {}),
        }  # fmt: skip
        name, module = _MODELS[case.method]
        registry: Any = import_module("vllm.model_executor.models.registry")
        registry.ModelRegistry.register_model(name, getattr(import_module(f"vllm.model_executor.models.{module}"), name))
        drafts = {"model": folder_of(drafter), "method": case.method, "num_speculative_tokens": 2}
        backend = "flash_attn.FlashAttentionBackend"
        return Worker(DENSE, backend=backend, context=_LENGTH, max_tokens=64, speculative=drafts)

    def _rotary(self, config: Any) -> Any:
        """Of the loaded drafter's layers. None where code that was compiled for another table would be taken."""
        import torch

        config.load_config.load_format = "dummy"
        draft = config.speculative_config.draft_model_config.hf_config
        before = draft.max_position_embeddings, config.compute_hash()
        make, given = self.engine[_V2].init_speculator, (config, torch.device("cpu"), None)
        speculator = make(*given[: len(signature(make).parameters)])
        length, key = draft.max_position_embeddings, config.compute_hash()
        if length != before[0] and key == before[1]:
            return None
        target: Any = torch.nn.Module()
        target.model, target.lm_head = torch.nn.Module(), torch.nn.Linear(256, 128)
        target.model.embed_tokens = torch.nn.Embedding(128, 256)
        speculator.load_model(target)
        return next(module for module in speculator.model.modules() if hasattr(module, "cos_sin_cache"))


def _no_accelerator() -> Any:
    import torch

    return replaced(torch.accelerator, "empty_cache", lambda: None)


def _frequencies(case: Case) -> Any:
    from attnfix.patches.lab.vllm import rotary

    kind, more = case.rope
    if kind == "dynamic":
        return rotary.frequencies(base=10000.0 * more["alpha"] ** (64 / 62))
    if kind == "ntk":
        factor = more["factor"]
        return rotary.frequencies(base=10000.0 * factor) / factor ** (2 / 64)
    found = rotary.frequencies()
    if kind == "llama3":
        return rotary.llama3(found, *more.values())
    return found / more.get("factor", 1)
