"""An edited copy of an engine release: links to the release, and new files where the edit made them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnfix.compat import gate

#: `edit(read) -> {module: new source}`; `read(module)` gives the release's own source
Edit = Callable[[Callable[[str], str]], dict[str, str]]


def site(folder: Path, engine: str, root: Path, edit: Edit) -> Path:
    """Lay out under `folder` what `edit` makes of the package at `root`; the folder to put on the path."""

    def read(module: str) -> str:
        path = gate.path_of(root, module)
        if path is None:
            raise LookupError(f"{module} is not in {root}")
        return path.read_text()

    copy = folder / "site"
    _linked(root.parent, copy)
    for module, source in edit(read).items():
        relative = gate.path_of(root, module).relative_to(root.parent)  # type: ignore[union-attr]
        for parent in reversed(relative.parents[:-1]):
            _own(copy / parent)
        (copy / relative).unlink()
        (copy / relative).write_text(source)
    return copy


def _linked(original: Path, copy: Path) -> None:
    """A folder of links to everything in `original`."""
    copy.mkdir()
    for entry in original.iterdir():
        if entry.name != "__pycache__":
            (copy / entry.name).symlink_to(entry)


def _own(folder: Path) -> None:
    """Turn a link to a folder into a folder of links."""
    if folder.is_symlink():
        original = folder.resolve()
        folder.unlink()
        _linked(original, folder)
