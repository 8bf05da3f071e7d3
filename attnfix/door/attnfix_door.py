"""The door of `attnfix run`: activates attnfix in a Python whose site folders do not hold it. Run at interpreter start, so
it imports `sys` alone.

What the process has of its own wins: a finder behind all others answers for attnfix and the one package that it needs in
a serving process, and for nothing else that lies beside them.
"""

import sys

_DOOR = __file__.rpartition("/")[0]
_BESIDE = _DOOR.rpartition("/")[0].rpartition("/")[0]
_NEEDED = ("attnfix", "packaging")


class NeverIssued(Warning):
    """The category that names this module in PYTHONWARNINGS (`attnfix/cli/run.py`)."""


class _Last:
    """Finds what the process has not: the packages in `_NEEDED`, in the folder that holds this attnfix."""

    def find_spec(self, name, path=None, target=None):
        if name not in _NEEDED:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [_BESIDE])

    def find_distributions(self, context):
        if context.name not in _NEEDED:  # not to one who lists what is installed: entry points stay the image's own
            return ()
        from importlib.metadata import DistributionFinder, MetadataPathFinder

        return MetadataPathFinder.find_distributions(DistributionFinder.Context(name=context.name, path=[_BESIDE]))


def _activate():
    if "attnfix._autoload" in sys.modules:  # the `.pth` has run
        return
    sys.meta_path.append(_Last())
    try:
        import attnfix._autoload  # noqa: F401
    except Exception as error:  # never the end of a process that would have run without us
        print(f"attnfix: not active in this process: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def run_the_one_behind():
    """Import the `sitecustomize` that would have been found without this folder on `sys.path`. Its errors are its own."""
    ours = sys.modules.pop("sitecustomize")
    place = sys.path.index(_DOOR)
    del sys.path[place]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path.insert(place, _DOOR)  # a launcher may hand `sys.path` on to its children
        sys.modules.setdefault("sitecustomize", ours)


_activate()
