"""Plugins of vLLM that the end-to-end scripts bring: modules with a NAME and an `install`, which import nothing from here."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType


def package(folder: Path, plugin: ModuleType) -> Path:
    """Lay the plugin out under `folder` as an installed package whose entry point vLLM finds; the folder to put on the path."""
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(str(plugin.__file__))
    shutil.copy(source, folder / source.name)
    about = folder / f"{plugin.NAME.replace('-', '_')}-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {plugin.NAME}\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{plugin.NAME} = {source.stem}:install\n")
    return folder
