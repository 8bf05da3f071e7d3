"""What attnfix knows of each engine as such: its names, its plugin allow-list, where it lies and what it calls itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from .fix import CodePath
from .gate import module_lookup


class Engine(NamedTuple):
    """`name` is the import package, the distribution and the root logger in one: true of both engines. `title` is how its
    project spells it, and `supported` the span of releases that attnfix knows.

    `load_model` are the places of the method that loads the model, watched under ATTNFIX_STRICT alone; `compiled` the packages
    whose compiled modules only this engine's processes map.
    """

    name: str
    title: str
    supported: str
    allow_list: str
    empty_allow_list_admits: bool
    allow_list_strips: bool
    load_model: tuple[CodePath, ...]
    compiled: tuple[str, ...]

    def admits_us(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Whether the operator's plugin allow-list, read as the engine reads it, lets attnfix in."""
        value = environ.get(self.allow_list)
        if value is None or (not value and self.empty_allow_list_admits):
            return True
        words = value.split(",")
        return "attnfix" in ([word.strip() for word in words] if self.allow_list_strips else words)


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "sglang",
            title="sglang",
            supported=">=0.5.1",
            allow_list="SGLANG_PLUGINS",
            empty_allow_list_admits=True,
            allow_list_strips=True,
            load_model=(CodePath("sglang.srt.model_executor.model_runner", "ModelRunner.load_model"),),
            compiled=("sglang", "sgl_kernel"),
        ),
        Engine(
            "vllm",
            title="vLLM",
            supported=">=0.10.0",
            allow_list="VLLM_PLUGINS",
            empty_allow_list_admits=False,
            allow_list_strips=False,
            load_model=(
                CodePath("vllm.v1.worker.gpu_model_runner", "GPUModelRunner.load_model"),
                CodePath("vllm.v1.worker.gpu.model_runner", "GPUModelRunner.load_model"),
            ),
            compiled=("vllm",),
        ),
    )
}


_versions: dict[Path, str | None] = {}


def engine_of(module: str) -> Engine:
    """The engine that owns `module`. Raises KeyError for a module of no engine."""
    return ENGINES[module.partition(".")[0]]


def loaded_root(engine: Engine) -> Path | None:
    """Folder of the engine's package in this process, or None before it is imported. Never imports it."""
    package = module_lookup.module(engine.name)
    paths = list(getattr(package, "__path__", ()))
    return Path(paths[0]) if paths else None


def installed_root(engine: Engine) -> Path | None:
    """Folder of the engine's package on `sys.path`, or None. Looks at folders alone: imports nothing."""
    for entry in sys.path:
        root = Path(entry or os.curdir) / engine.name
        if (root / "__init__.py").is_file():
            return root.resolve()
    return None


def version_beside(root: Path) -> str | None:
    """Version of the distribution that lies beside the package folder `root`; None where it left no metadata."""
    return version_in(root.parent, root.name)


def version_in(folder: Path, name: str) -> str | None:
    """Version of the distribution `name` whose metadata lies in `folder`; None where there is none."""
    from importlib.metadata import distributions

    for distribution in distributions(name=name, path=[str(folder)]):
        # `.version` parses the whole text, with an engine's README 5-10 ms
        head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
        return next((line.partition(":")[2].strip() for line in head.splitlines() if line.startswith("Version:")), None)
    return None


def version_of(engine: Engine) -> str | None:
    """What the engine in this process calls itself; None where it is not loaded or left no metadata.

    Read once: an upgrade in place changes the metadata, and not what is loaded.
    """
    root = loaded_root(engine)
    if root and root not in _versions:
        _versions[root] = version_beside(root)
    return _versions[root] if root else None
