"""How much the happens-before checker notices: waits, events and locks of a release are removed one at a time.

    python -m scripts.order_removals sglang 0.5.19
    python -m scripts.order_removals vllm 0.24.0

Each statement of the release's modules that orders streams or threads (a wait, a record, `record_stream`, a lock, a poll) is
left out once, in a process of its own, and the scenarios of `patches/lab` run. A removal is reported if a race appears that the
release does not have as it is. The program prints a row for each, and how many of those that ran were reported.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from attnfix.compat.releases import fetch
from attnfix.prove import stubs

#: Calls that order something, as statements
_ORDERING = {
    "wait", "wait_event", "wait_stream", "synchronize", "record", "record_event", "record_stream", "wait_until", "complete",
    "on_layer_done", "_record_transfer_indices_on_stream", "_record_stream",
}  # fmt: skip
#: Their receivers order nothing
_NOT_STREAMS = ("stop_event", "logger", "self.load_cache_event")
_SGLANG = "sglang.srt."
MODULES = {
    "sglang": tuple(_SGLANG + name for name in (
        "managers.cache_controller", "mem_cache.memory_pool", "mem_cache.l2_transfer",
        "mem_cache.hybrid_cache.hybrid_cache_controller",
    )),
    "vllm": (
        "vllm.v1.kv_offload.worker.cpu_gpu", "vllm.v1.kv_offload.cpu.gpu_worker", "vllm.v1.simple_kv_offload.worker",
        "vllm.v1.simple_kv_offload.copy_backend",
    ),
}  # fmt: skip
#: What is compared of a race
Races = set[tuple[str, ...]]


@dataclass
class Sites:
    """Statements that may be left out: `removed` is, and `ran` have been reached."""

    named: dict[int, str] = field(default_factory=dict)
    removed: int = 0
    ran: set[int] = field(default_factory=set)

    def add(self, name: str) -> int:
        self.named[len(self.named) + 1] = name
        return len(self.named)

    def keeps(self, site: int) -> bool:
        self.ran.add(site)
        return site != self.removed


class _Optional(ast.NodeTransformer):
    """Each ordering statement asks whether it is kept."""

    def __init__(self, sites: Sites, home: str):
        self.sites, self.home = sites, home
        self.inside: list[str] = []
        self.asserted = False

    def _asks(self, node: ast.AST) -> ast.Call:
        line = f"{self.home}:{getattr(node, 'lineno', 0)} {'.'.join(self.inside)}: "
        text = " ".join(ast.unparse(node).split("\n")[0].split())
        site = self.sites.add(line + text + (" (asserted)" if self.asserted else ""))
        asked = ast.Call(ast.Name("__order_keeps__", ast.Load()), [ast.Constant(site)], [])
        return ast.copy_location(asked, node)

    def _within(self, node: Any) -> Any:
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        self.asserted = True
        self.generic_visit(node)
        self.asserted = False
        return node

    visit_FunctionDef = visit_ClassDef = visit_AsyncFunctionDef = _within

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name not in _ORDERING or ast.unparse(function).startswith(_NOT_STREAMS) or "stop_event" in ast.unparse(function):
            return self.generic_visit(node)
        return ast.copy_location(ast.If(self._asks(node), [node], []), node)

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            if ast.unparse(item.context_expr).lower().endswith(("lock", "condition", "conditions[self.consumer_index]")):
                other = ast.Call(ast.Name("__order_nothing__", ast.Load()), [], [])
                item.context_expr = ast.IfExp(self._asks(item.context_expr), item.context_expr, other)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "query" and not node.args:
            return ast.copy_location(ast.IfExp(self._asks(node), node, ast.Constant(True)), node)
        return node


def instrument(module: ModuleType, sites: Sites) -> None:
    """Every function of the module gets code whose ordering statements ask `sites`."""
    file = inspect.getsourcefile(module) or ""
    with open(file) as source:
        tree = ast.fix_missing_locations(_Optional(sites, os.path.basename(file)).visit(ast.parse(source.read())))
    codes = {code.co_qualname: code for code in _codes(compile(tree, file, "exec", dont_inherit=True))}
    for function in _functions(module):
        code = codes.get(function.__code__.co_qualname)
        if code is not None and code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _functions(module: ModuleType) -> Iterator[Any]:
    for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
        if owner is not module and owner.__module__ != module.__name__:
            continue
        for one in vars(owner).values():
            one = one.__func__ if isinstance(one, (staticmethod, classmethod)) else one
            one = one.fget if isinstance(one, property) else one
            one = inspect.unwrap(one) if callable(one) else one
            if inspect.isfunction(one) and one.__module__ == module.__name__:
                yield one


def scenarios(engine: str, without: str = "") -> dict[str, Callable[[], Any]]:
    """Name -> a scenario of the lab, which returns its `Order`. without: a fence that the scheduler leaves out."""
    if engine == "vllm":
        from attnfix.patches.lab.vllm import offload

        return {kind.__name__: partial(offload.recorded, kind) for kind in (offload.Offload, offload.SimpleOffload)}
    from attnfix.patches.lab.sglang import hicache

    return {
        f"{name}, {io}": partial(hicache.recorded, indexed, io, without)
        for name, indexed in (("MHA", False), ("sparse MLA", True))
        for io in ("kernel", "direct")
    }


def fences(engine: str) -> list[str]:
    """Streams that the scheduler tells the controller, each a statement that may be missing."""
    if engine != "sglang":
        return []
    from attnfix.patches.lab.sglang import hicache

    return [*hicache.fences()]


def apart(work: Callable[[], Any]) -> Any:
    """What `work` returns, as JSON has it, in a forked process; None if that ends otherwise."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        try:
            with os.fdopen(writes, "w") as pipe:
                json.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def observed(engine: str, sites: Sites, removed: int = 0, without: str = "", known: Races | None = None) -> dict[str, Any]:
    """Races of the scenarios with one statement left out, up to the first scenario that has one which is not known; the
    statements that were reached; lines of events for which nobody waits; scenarios that raised."""
    sites.removed = removed
    races: Races = set()
    unasked: list[set[str]] = []
    asked: set[str] = set()
    raised: dict[str, str] = {}
    for name, run in scenarios(engine, without).items():
        try:
            order = run()
        except Exception as error:
            raised[name] = f"{type(error).__name__}: {error}"
            continue
        races |= {(name, *told(race)) for race in order.races}
        unasked.append(order.unasked())
        asked |= order._asked
        if known is not None and races - known:
            break
    return {"races": [*races], "ran": [*sites.ran], "unasked": [*set().union(*unasked) - asked], "raised": raised}


def told(race: Any) -> tuple[str, ...]:
    return race.kind, race.memory, race.first.what, race.second.what, race.second.actor.name


def compared(engine: str, sites: Sites) -> Iterator[tuple[str, str, str]]:
    """(what came of a removal, the statement, the first race or the reason)."""
    stock = apart(lambda: observed(engine, sites))
    known = set(map(tuple, stock["races"]))
    lines = {where.partition(" ")[0] for where in stock["unasked"]}
    print(f"as it is: {len(known)} races; did not run: {stock['raised'] or 'none'}", flush=True)
    removals: list[tuple[str, dict[str, Any]]] = [(name, {"removed": site}) for site, name in sites.named.items()]
    removals += [(f"scheduler.py: {name}", {"without": name}) for name in fences(engine)]
    for name, how in removals:
        if how.get("removed") and how["removed"] not in stock["ran"]:
            yield "not reached", name, ""
            continue
        got = apart(partial(observed, engine, sites, known=known, **how))
        new = sorted(set(map(tuple, got["races"])) - known) if got else []
        raised = (
            {case: why for case, why in got["raised"].items() if case not in stock["raised"]} if got else "the process ended"
        )
        if new:
            yield "reported", name, "; ".join(new[0])
        elif name.partition(" ")[0] in lines:
            yield "orders nothing", name, "nobody waits for this event: its time alone is read"
        elif name.endswith("(asserted)"):
            yield "orders nothing", name, "an assertion: it ends the server, and waits for nothing"
        else:
            yield "MISSED", name, f"raised {raised}" if raised else ""


def main(engine: str, release: str) -> int:
    sys.path.insert(0, str(fetch.fetch(engine, release)))
    stubs.install(engine)
    if engine == "sglang":
        importlib.import_module("attnfix.patches.lab.sglang.absent")
        importlib.import_module("sglang.srt.layers.quantization")
        with suppress(ModuleNotFoundError):
            importlib.import_module("sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler")
    return table(engine, release)


def table(engine: str, release: str) -> int:
    """Print a row for each removal; 0 if at least nine of ten are reported."""
    sites = Sites()
    vars(builtins).update(__order_keeps__=sites.keeps, __order_nothing__=nullcontext)
    for name in MODULES[engine]:
        try:
            instrument(importlib.import_module(name), sites)
        except ModuleNotFoundError:
            continue
    counts: Counter[str] = Counter()
    for outcome, name, why in compared(engine, sites):
        counts[outcome] += 1
        if outcome != "not reached":
            print(f"{outcome:14} {name}  [{why}]", flush=True)
    reported, missed, nothing = counts["reported"], counts["MISSED"], counts["orders nothing"]
    print(f"{engine} {release}: {reported} of {reported + missed + nothing} are reported; {nothing} others order nothing;")
    print(f"{missed} are missed; {counts['not reached']} statements were not reached")
    return 0 if reported >= 0.9 * (reported + missed) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
