"""Other patchers on the small engine, before and after attnfix: `python other_patchers_run.py REQUEST`; answers are JSON lines.

Each case is a fork. A patcher adds THEIRS to what its target returns, so that what it does and what attnfix does are told
apart.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import small_engine
from children import forked

THEIRS = 10_000
REQUEST: dict[str, Any] = {}
FORWARD, PLAN, BACKEND = "sglang.attention.Backend.forward", "sglang.planning.plan", "sglang.attention.Backend"


class Case(NamedTuple):
    """`patch(target)` patches. `keeps`: whether it changes no attribute, so that what came before it stands."""

    name: str
    target: str
    patch: Callable[[str], None]
    keeps: bool = False
    adds: bool = True


def holder_of(target: str) -> tuple[Any, str]:
    """The object that holds a dotted target, and its name in there."""
    import pkgutil

    owner, _, name = target.rpartition(".")
    return pkgutil.resolve_name(owner), name


def hook_registry() -> Iterator[Case]:
    """sglang's own, from the file of a release."""
    spec = importlib.util.spec_from_file_location("hook_registry", REQUEST["file"])
    assert spec and spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)

    def applied(hook: Callable, kind: Any) -> Callable[[str], None]:
        def patch(target: str) -> None:
            module.HookRegistry.register(target, hook, kind)
            module.HookRegistry.apply_hooks()

        return patch

    kinds = module.HookType
    for target, stock in ((FORWARD, lambda self, x, scale=2: x * scale), (PLAN, lambda x: x + 1)):
        yield Case("before", target, applied(lambda *args, **kwargs: (args, kwargs), kinds.BEFORE), adds=False)
        yield Case("after", target, applied(lambda result, *args, **kwargs: result + THEIRS, kinds.AFTER))
        yield Case("around", target, applied(lambda original, *args: original(*args) + THEIRS, kinds.AROUND))
        replaced = applied(lambda *args, stock=stock: stock(*args) + THEIRS, kinds.REPLACE)
        yield Case("replace", target, replaced)

    def replace_class(target: str) -> None:
        import sglang.attention as attention

        applied(type("Theirs", (attention.Backend,), {}), kinds.REPLACE)(target)

    yield Case("replace a class", BACKEND, replace_class, adds=False)


def opentelemetry() -> Iterator[Case]:
    """An instrumentor in the form of its packages."""
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
    from wrapt import wrap_function_wrapper

    class Instrumentor(BaseInstrumentor):
        def instrumentation_dependencies(self) -> list[str]:
            return []

        def _instrument(self, **kwargs: Any) -> None:
            owner, name = holder_of(kwargs["target"])
            wrap_function_wrapper(owner, name, lambda wrapped, instance, args, kw: wrapped(*args, **kw) + THEIRS)

        def _uninstrument(self, **kwargs: Any) -> None:
            pass

    for target in (FORWARD, PLAN):
        yield Case("an instrumentor", target, lambda target: Instrumentor().instrument(target=target))


def ddtrace() -> Iterator[Case]:
    """Its wrapping of bytecode, in place, and its decorator."""
    from ddtrace.internal.wrapping import wrap
    from ddtrace.trace import tracer

    def bytecode(target: str) -> None:
        owner, name = holder_of(target)
        found = vars(owner)[name]
        wrap(getattr(found, "__wrapped__", found), lambda f, args, kwargs: f(*args, **kwargs) + THEIRS)

    def decorator(target: str) -> None:
        owner, name = holder_of(target)
        setattr(owner, name, tracer.wrap()(vars(owner)[name]))

    for target in (FORWARD, PLAN):
        yield Case("bytecode in place", target, bytecode, keeps=True)
        yield Case("tracer.wrap", target, decorator, adds=False)


def copy() -> Iterator[Case]:
    """Another version of attnfix, loaded where this one was, with its own import hook, and activated."""

    def activated(target: str) -> None:
        ours = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "attnfix"}
        sys.path.insert(0, REQUEST["copy"])
        if target == "both hooks":
            sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Finder"]
        from attnfix.bootstrap import import_hook, target_modules

        assert import_hook.__file__ and import_hook.__file__.startswith(REQUEST["copy"]), import_hook.__file__
        target_modules.MODULES = small_engine.MODULES
        small_engine.replace_catalogues()
        if target == "both hooks":  # ours goes on answering, too
            sys.meta_path.append(ours["attnfix.bootstrap.import_hook"]._Finder())
        import attnfix

        attnfix.activate()

    for target in ("its finder stays", "both hooks"):
        yield Case("a second copy", target, activated, keeps=True, adds=False)


def seen_after(case: Case, order: str) -> dict[str, Any]:
    import attnfix
    from attnfix.bootstrap import import_hook

    if order == "before attnfix":
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Finder"]
        small_engine.load()
        case.patch(case.target)
        import_hook.install()
        attnfix.activate()
    elif order == "while a fix is pending":
        import sglang.attention  # noqa: F401

        case.patch(case.target)
        small_engine.load()
    else:
        small_engine.load()
        case.patch(case.target)
    seen = small_engine.use()
    rows = {row["fix"]: [row["state"], row["reason"]] for row in sys.modules["attnfix"].status()}
    return {"seen": list(seen), "rows": rows}


def wrong(case: Case, order: str, told: dict[str, Any]) -> str | None:
    """What came out wrong, or None: never half, never twice, and what the docs say of this order."""
    if told.get("error") or told["ended"]:
        return f"ended with {told['ended']}: {told.get('error')}"
    forward, captured, buffers, plan, padded = told["seen"]
    if case.adds:
        if max(forward, plan) < THEIRS:
            return f"their patch is lost: {told['seen']}"
        forward, captured, plan = forward % THEIRS, captured % THEIRS, plan % THEIRS
    seen = small_engine.Seen(forward, captured, buffers, plan, padded)
    if seen.half:
        return f"half armed, or corrected twice: {list(seen)}, {told['rows']}"
    stands = case.keeps and order != "before attnfix"
    both = case.target not in (PLAN,)
    expected = ("armed", "armed") if stands else ("stock", "stock" if both else "armed")
    if case.name == "a second copy" and order != "after attnfix":
        expected = (seen.first, seen.second)  # whole, whoever it is that stands
    if (seen.first, seen.second) != expected:
        return f"{(seen.first, seen.second)}, not {expected}: {told['rows']}"
    state = told["rows"]["sglang.small-fix"][0]
    if not stands and case.name != "a second copy" and state not in ("conflict", "failed"):
        return f"the state is {state}"
    return None


def orders(case: Case) -> tuple[str, ...]:
    return ("before attnfix", "after attnfix") + (() if case.target == PLAN else ("while a fix is pending",))


PATCHERS: dict[str, Callable[[], Iterator[Case]]] = {
    "hook_registry": hook_registry, "opentelemetry": opentelemetry, "ddtrace": ddtrace, "copy": copy,
}  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        folder = Path(scratch)
        os.environ["ATTNFIX_RUN_DIR"] = str(folder / "run")
        small_engine.put_in_place(Path(REQUEST["folder"]))
        for case in PATCHERS[REQUEST["patcher"]]():
            for order in orders(case):
                told = forked(lambda case=case, order=order: seen_after(case, order), folder)  # type: ignore[misc]
                name = f"{case.name} on {case.target}, {order}"
                rows = {fix: row[0] for fix, row in told.get("rows", {}).items()}
                print(json.dumps({"case": name, "wrong": wrong(case, order, told), "rows": rows}), flush=True)


if __name__ == "__main__":
    REQUEST.update(json.loads(sys.argv[1]))
    main()
