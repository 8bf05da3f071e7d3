"""The door that needs nobody: run by the `.pth` file at every interpreter start, so it imports `sys` alone and is small.

Puts one finder on `sys.meta_path` that answers only the exact names of target modules, finds them with the other finders,
and calls `plugin.module_loaded` when the body of one has run. Everything else is imported at that moment, not here.
"""

import sys

from ._targets import MODULES


class _Loader:
    """Stands before the real loader of one module; takes itself off again before the body runs."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        try:
            from .plugin import module_loaded

            module_loaded(module.__name__)
        except Exception as error:  # an engine turns an exception here into another backend, silently
            print(f"attnfix: not active in {module.__name__}: {type(error).__name__}: {error}", file=sys.stderr)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in MODULES:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # stands in for any loader
                    return spec
        return None


def install():
    """Put the finder first on `sys.meta_path`. Idempotent."""
    if not any(type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
