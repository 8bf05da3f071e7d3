"""What `attnfix run` puts on the path: activates attnfix in a Python whose site folders do not hold it. Run at interpreter
start, so it imports `sys` alone.

What the process has of its own wins: a finder behind all others answers for attnfix and the two packages that it needs
in a serving process, and for nothing else that lies beside them.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution, DistributionFinder

_FOLDER = __file__.rpartition("/")[0]
_BESIDE = _FOLDER.rsplit("/", 3)[0]  # bootstrap/path_entry lies in attnfix
_NEEDED = ("attnfix", "packaging", "wrapt")


class _Last:
    """Finds what the process has not: the packages in `_NEEDED`, in the folder that holds this attnfix."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        if name not in _NEEDED:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [_BESIDE])

    def find_distributions(self, context: "DistributionFinder.Context") -> "Iterable[Distribution]":
        if context.name not in _NEEDED:  # not to one who lists what is installed: entry points stay the image's own
            return ()
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        return MetadataPathFinder.find_distributions(DistributionFinder.Context(name=context.name, path=[_BESIDE]))


def _activate() -> None:
    if "attnfix.bootstrap.import_hook" in sys.modules:  # the `.pth` has run
        return
    sys.meta_path.append(_Last())
    try:
        import attnfix.bootstrap.import_hook  # noqa: F401
    except Exception as error:  # never the end of a process that would have run without us
        print(f"attnfix: not active in this process: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def run_the_one_behind() -> None:
    """Import the `sitecustomize` that would have been found without this folder on `sys.path`. Its errors are its own."""
    ours = sys.modules.pop("sitecustomize")
    place = sys.path.index(_FOLDER)
    del sys.path[place]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path.insert(place, _FOLDER)  # a launcher may hand `sys.path` on to its children
        sys.modules.setdefault("sitecustomize", ours)


_activate()
