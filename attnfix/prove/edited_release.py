"""An edited copy of an engine release: links to the release, and new files where the edit made them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

from attnfix.compat.gate import source_files

#: `edit(read) -> {module: new source}`; `read(module)` gives the release's own source
Edit = Callable[[Callable[[str], str]], dict[str, str]]


def site(folder: Path, engine: str, root: Path, edit: Edit) -> Path:
    """Lay out under `folder` what `edit` makes of the package at `root`; the folder to put on the path."""

    def path_of(module: str) -> Path:
        path: Path | None = source_files.path_of(root, module)
        if path is None:
            raise LookupError(f"{module} is not in {root}")
        return path

    copy = folder / "site"
    _linked(root.parent, copy)
    for module, source in edit(lambda module: path_of(module).read_text()).items():
        relative = path_of(module).relative_to(root.parent)
        for parent in reversed(relative.parents[:-1]):
            own(copy / parent)
        (copy / relative).unlink()
        (copy / relative).write_text(source)
        Path(cache_from_source(str(copy / relative))).unlink(missing_ok=True)
    return copy


def read(stock: source_files.READ, edit: Edit, beside: source_files.READ | None = None) -> source_files.READ:
    """What the gate would read of `stock` after `edit`, without a copy; modules that it leaves alone as in `beside`."""
    changed = {module: source.encode() for module, source in edit(lambda module: (stock(module) or b"").decode()).items()}
    return lambda module: changed[module] if module in changed else (beside or stock)(module)


def _linked(original: Path, copy: Path) -> None:
    """A folder of links to everything in `original`; of its bytecode copies, for here other modules will be compiled."""
    copy.mkdir()
    for entry in original.iterdir():
        if entry.name == "__pycache__":
            shutil.copytree(entry, copy / entry.name, ignore=_being_written)
        else:
            (copy / entry.name).symlink_to(entry)


def _being_written(folder: str, names: list[str]) -> list[str]:
    """Files that another process is about to rename."""
    return [name for name in names if not name.endswith(".pyc")]


def own(folder: Path) -> None:
    """Turn a link to a folder into a folder of links, in which files may be replaced."""
    if folder.is_symlink():
        original = folder.resolve()
        folder.unlink()
        _linked(original, folder)
