"""What one release of sglang chooses for deployments: `python -m scripts.doctor_corpus.sglang_release`, its site on PYTHONPATH.

Standard input is a list of cases {model: folder, architecture, launch: words, variables, gpu}. The last line of standard output
has their answers, {facts: name of a fact -> value} or {error}. The engine's own configuration and selectors run on this CPU,
with a platform that looks like the GPU. Only functions that ask the machine are replaced.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.doctor.condition import OFF, ON
from attnfix.compat.doctor.gpus import NVIDIA, named
from attnfix.patches.lab.sglang.engine import module
from attnfix.prove import side, stubs

#: GPU -> its memory in GiB
MEMORY = {"a100": 80, "l40s": 45, "h100": 80, "h200": 141, "b200": 180, "mi300x": 192}


def main(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    os.environ["ATTNFIX"] = "0"
    stubs.install("sglang")
    side._ease_engine("sglang")
    for name in ("server_args", "configs.model_config", "configs.hybrid_arch", "model_executor.model_runner",
                 "speculative.draft_utils", "speculative.spec_info"):  # fmt: skip
        module(name)
    if hasattr(module("utils.hf_transformers_utils"), "_load_deepseek_v32_model"):
        from transformers import CONFIG_MAPPING  # the release's own has no such model, and the engine makes it another's

        CONFIG_MAPPING._mapping.pop("deepseek_v32", None)
    classes = {arch: _model_class(arch) for arch in {case["architecture"] for case in cases}}
    return [side._in_a_fork(_answer, case, classes[case["architecture"]]) for case in cases]


def _answer(case: dict[str, Any], model: Any) -> dict[str, Any]:
    os.environ.update(case["variables"])
    emulate(case["gpu"])
    from sglang.srt.server_args import prepare_server_args

    try:
        asked = prepare_server_args(["--model-path", case["model"], *case["launch"]])
        if hasattr(asked, "resolve_once"):
            asked.resolve_once()
        return {"facts": dict(_facts(Chosen(asked, model)))}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300], "where": traceback.format_exc()[-900:]}


def emulate(gpu: str) -> None:
    """Makes torch and what the engine remembers of the machine those of eight such GPUs."""
    import torch

    nvidia = (found := named(gpu)) is not None and found.maker == NVIDIA
    capability = divmod(found.capability, 10) if found and found.capability else (9, 4)
    properties = SimpleNamespace(
        name=gpu, major=capability[0], minor=capability[1], multi_processor_count=132, total_memory=MEMORY[gpu] << 30,
        gcnArchName="gfx942:sramecc+:xnack-", warp_size=32 if nvidia else 64,
    )  # fmt: skip
    torch.version.cuda, torch.version.hip = ("12.9", None) if nvidia else (None, "6.4")
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 8, "get_device_capability": capability, "get_device_properties": properties,
        "get_device_name": gpu, "current_device": 0, "mem_get_info": (MEMORY[gpu] << 30, MEMORY[gpu] << 30),
        "is_initialized": False, "set_device": None,
    }  # fmt: skip
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    probes: dict[str, Any] = {
        name: float(MEMORY[gpu] << 10) for name in ("get_nvgpu_memory_capacity", "get_amdgpu_memory_capacity")
    }
    probes |= {"is_flashinfer_available": nvidia, "get_nvidia_driver_version": (580, 65)}
    flags = {"_is_cuda": nvidia, "_is_hip": not nvidia, "is_cuda_": nvidia}
    for name, engine in list(sys.modules.items()):
        if name.startswith("sglang."):
            for key, value in list(vars(engine).items()):
                if key in probes and callable(value):
                    setattr(engine, key, lambda *_, value=probes[key], **__: value)
                elif key in flags and not callable(value):
                    setattr(engine, key, flags[key])
                elif key.endswith("QUANTIZATION_METHODS") and isinstance(value, dict) and hasattr(engine, "Mxfp4Config"):
                    value.setdefault("mxfp4", engine.Mxfp4Config)  # registered where the import sees a GPU
                elif callable(getattr(value, "cache_clear", None)) and hasattr(value, "__wrapped__"):
                    value.cache_clear()


def _model_class(architecture: str) -> Any:
    """The engine's class of a model, found in its source; None if this release has none, or it cannot be imported here."""
    for file in sorted((Path(sys.modules["sglang"].__path__[0]) / "srt" / "models").glob("*.py")):
        if re.search(rf"^class {architecture}\b", file.read_text(), re.M):
            with suppress(Exception):
                return getattr(importlib.import_module(f"sglang.srt.models.{file.stem}"), architecture)
    return None


class Chosen:
    """The engine's arguments after its own resolution, and its configuration of the model."""

    def __init__(self, asked: Any, model: Any):
        overrides = module("arg_groups.overrides")
        self.asked, self.model = asked, model
        self.view = overrides.resolved_view(asked) if hasattr(overrides, "resolved_view") and overrides else asked
        if hasattr(asked, "get_model_config"):
            self.config = asked.get_model_config()
        else:
            self.config = module("arg_groups.model_override_base").model_config_of(asked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view, name)

    def backend(self, phase: str) -> Any:
        return getattr(self, f"{phase}_attention_backend") or self.attention_backend

    def recurrent(self, kind: str) -> Any:
        """The engine's configuration of that kind of layers; None where the model has none."""
        if arch := module("configs.hybrid_arch"):
            return getattr(arch, f"{kind}_config")(self.config)
        runner = module("model_executor.model_runner").ModelRunner
        fake = object.__new__(runner)
        vars(fake).update(model_config=self.config, is_draft_worker=False)
        return getattr(fake, f"{kind}_config")

    def window(self) -> Any:
        """The sliding window of the model runner, as it asks the model for it."""
        name = "get_attention_sliding_window_size"
        if self.model is not None and hasattr(self.model, name):
            text = self.config.hf_text_config
            of = SimpleNamespace(config=text, get_attention_sliding_window_size=lambda: None)
            inner = importlib.import_module(self.model.__module__)
            for part in vars(inner).values():
                if isinstance(part, type) and part is not self.model and name in vars(part):
                    of.get_attention_sliding_window_size = lambda part=part: getattr(part, name)(of)
            return getattr(self.model, name)(SimpleNamespace(config=text, language_model=of, model=of))
        load = module("model_executor.model_runner_components.load_model_utils")
        if hasattr(load, "resolve_sliding_window_size"):
            return load.resolve_sliding_window_size(object(), self.config)
        return self.config.attention_chunk_size


def _facts(it: Chosen) -> Iterator[tuple[str, str | int]]:
    def switch(value: object) -> Any:
        return ON if value else OFF

    text = it.config.hf_text_config
    latent = it.config.attention_arch.name == "MLA"
    yield "attention", ("sparse MLA" if getattr(text, "index_topk", None) else "MLA") if latent else "MHA"
    prefill, decode = it.backend("prefill"), it.backend("decode")
    yield "prefill backend", prefill
    yield "decode backend", decode
    algorithm = str(it.speculative_algorithm or "none").upper()
    algorithm = "none" if algorithm == "NONE" else algorithm
    verify = decode if it.speculative_attention_mode == "decode" else prefill
    own = it.speculative_draft_attention_backend
    yield "verify backend", verify
    if algorithm != "NGRAM":
        yield "draft decode backend", own or decode
        yield "draft extend backend", own or verify
    yield "speculative algorithm", algorithm
    yield "speculative decoding", switch(algorithm != "none")
    if algorithm != "none":
        yield "speculative topk", it.speculative_eagle_topk or 1
        yield "speculative steps", it.speculative_num_steps or 1
        yield "trees of drafts", switch((it.speculative_eagle_topk or 1) > 1)
    yield "spec v2", switch(algorithm != "none" and _second_version(it))
    file = getattr(it, "quantization_param_path", None)
    yield "KV scales from a file", switch(file and it.kv_cache_dtype == "fp8_e4m3")
    graphs = getattr(it, "cuda_graph_config", None)
    yield (
        "CUDA graphs",
        switch(str(graphs.decode.backend).rpartition(".")[2].lower() != "disabled" if graphs else not it.disable_cuda_graph),
    )
    chunked = (it.chunked_prefill_size or -1) > 0
    yield "cached prefix", switch(not it.disable_radix_cache or chunked)
    yield "deterministic inference", switch(it.enable_deterministic_inference)
    yield "sliding-window KV pool", switch(it.config.is_hybrid_swa and not it.disable_hybrid_swa_memory)
    window, said = it.window(), getattr(text, "sliding_window", None)
    yield "sliding-window layers", switch(window is not None and window > -1)
    yield "window of the runner", "none" if window is None else "a token short" if said and window == said - 1 else "whole"
    yield "encoder-decoder", switch(it.config.is_encoder_decoder)
    yield "Mamba2 layers", switch(it.recurrent("mamba2"))
    yield "recurrent layers", switch(it.recurrent("mambaish"))
    strategy = getattr(it, "mamba_radix_cache_strategy", None) or getattr(it, "mamba_scheduler_strategy", None)
    if it.recurrent("mambaish"):
        tracked = not it.disable_radix_cache and strategy in ("extra_buffer", "extra_buffer_lazy")
        yield "tracked Mamba states", switch(tracked)
        yield "states kept by turns", switch(tracked and not it.disable_overlap_schedule)
    yield "page size", it.page_size or 1
    yield "tokens of a page", it.page_size or 1
    scattered = str(getattr(it, "moe_a2a_backend", None) or "none") != "none" or it.moe_dense_tp_size == 1
    groups = it.dp_size if it.enable_dp_attention else 1
    yield "padded prefills", switch((it.enable_dp_attention or scattered) and it.tp_size > groups)
    yield "two-batch overlap", switch(it.enable_two_batch_overlap)
    yield "hybrid backend", switch(prefill != decode or (latent and it.recurrent("mambaish")))
    if latent:
        yield "chunked prefix cache", switch(not it.disable_chunked_prefix_cache and prefill in _chunked())
    if hasattr(it.config, "has_attention_sinks"):
        yield "attention sinks", switch(it.config.has_attention_sinks)
    yield "LoRA adapters", switch(it.enable_lora)


def _chunked() -> Any:
    """Backends under which the runner leaves the chunked prefix cache on."""
    for name in ("model_executor.model_runner", "model_executor.model_runner_components.misc_utils"):
        if found := getattr(module(name), "CHUNKED_PREFIX_CACHE_SUPPORTED_ATTENTION_BACKENDS", None):
            return found
    raise LookupError("no list of backends with a chunked prefix cache")


def _second_version(it: Chosen) -> bool:
    algorithms = module("speculative.spec_info").SpeculativeAlgorithm
    worker = algorithms.from_string(it.speculative_algorithm)
    if not hasattr(worker, "is_eagle") or not (worker.is_eagle() or worker.is_standalone()):
        return False
    with suppress(Exception):
        return bool(worker.create_worker(it.asked).__name__.endswith("V2"))
    return not bool(it.disable_overlap_schedule)


if __name__ == "__main__":
    print("\nlabels " + json.dumps(main(json.load(sys.stdin))), flush=True)
