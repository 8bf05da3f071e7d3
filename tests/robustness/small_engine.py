"""A package with the shape of an engine: two target modules, one that loads the model, one witness, every kind of target.

Two fixes stand on it, and share a target. `write` lays it out; `put_in_place` makes this process's attnfix take it for sglang,
through its own hook and activation.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = {
    "__init__": "",
    "attention": """
class Base:
    def buffers(self):
        return "base"

class Heir(Base):
    pass

class Backend:
    def __init__(self):
        self.captured = self.forward

    def forward(self, x, scale=2):
        return x * scale
""",
    "planning": """
def plan(x):
    return x + 1

class Plan:
    padded = False
""",
    "caller": "def call(x):\n    return x\n",
    "runner": "class Runner:\n    def load_model(self):\n        return 'loaded'\n",
}
CORRECTIONS = """
def forward(call, instance):
    result = call()
    call.corrected(rows=3)
    return result + 100

def plan(call, instance):
    return call() + 1000

def buffers(call, instance):
    return call() + " and ours"
"""
SECOND = """
def forward(call, instance):
    return call() + 5
"""
TARGETS = ("attention", "planning")
MODULES = frozenset({"sglang", "sglang.runner", *(f"sglang.{name}" for name in TARGETS)})


def write(folder: Path) -> None:
    """The package, and a folder with corrections and ledger for each fix."""
    for name, source in SOURCES.items():
        _write(folder / "sglang" / f"{name}.py", source)
    _write(folder / "first" / "corrections_one.py", CORRECTIONS)
    _write(folder / "second" / "corrections_two.py", SECOND)
    _write(folder / "sglang-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: sglang\nVersion: 1.0\n")
    _on_path(folder)
    for fix in fixes():
        judge(folder, fix)


#: {index: {id of a fix: itself, what is known of it}}
_judged: dict[Path, dict[str, tuple[Any, Any]]] = {}


def judge(folder: Path, fix: Any, verdict: str = "affected", release: str = "1.0", *, also: bool = False) -> None:
    """Have the index know the code as it lies there now; with `also`, beside what it knows."""
    from attnfix.compat.gate import judge, source_files
    from scripts.ledger.index_text import Judged

    read = source_files.Sources(folder / "sglang")
    digests = judge.digests(fix, read)
    found = [Judged(release, verdict, digests, judge.file_hashes(fix, read), judge.name_of(digests))]
    know(fix, [*known(fix)[0], *found] if also else found)


def know(fix: Any, judged: Any, edited: Any = ()) -> None:
    """Write these rows of `scripts.ledger.index_text` of a fix, beside those of others."""
    from attnfix.compat.gate import index, ledger
    from scripts.ledger import index_text

    of_all = _judged.setdefault(ledger.path_of(fix), {})
    of_all[fix.id] = fix, (judged, edited)
    ledger.path_of(fix).write_text(index_text.text(dict(of_all.values())))
    index.read.cache_clear()
    ledger.load.cache_clear()


def known(fix: Any) -> Any:
    from attnfix.compat.gate import ledger

    return _judged[ledger.path_of(fix)][fix.id][1]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _on_path(folder: Path) -> None:
    sys.path[:0] = [str(folder), str(folder / "first"), str(folder / "second")]


def fixes() -> tuple[Any, ...]:
    import corrections_one
    import corrections_two

    from attnfix.compat.fix import Attribute, Fix, Override, Target, Upstream

    def made(id: str, *targets: Any, witnesses: tuple[str, ...] = ()) -> Fix:
        return Fix(
            id=id, title="t", symptom="s", symptoms=(), cause="c", correction="r", hardware="any", default=True,
            default_reason="",
            upstream=Upstream("a/b", 1), cost="", expect="", targets=targets, witnesses=witnesses,
        )  # fmt: skip

    forward = "sglang.attention:Backend.forward"
    return (
        made(
            "sglang.small-fix",
            Target(corrections_one.forward, paths=(forward,)),
            Override(corrections_one.buffers, paths=("sglang.attention:Heir.buffers",), of=("sglang.attention:Base.buffers",)),
            Target(corrections_one.plan, paths=("sglang.planning:plan",)),
            Attribute(True, paths=("sglang.planning:Plan.padded",)),
            witnesses=("sglang.attention:Backend.__init__", "sglang.caller:call"),
        ),
        made("sglang.second-fix", Target(corrections_two.forward, paths=(forward,))),
    )


def put_in_place(folder: Path) -> None:
    """Imports of attnfix its import hook alone: the rest comes as beside a real engine, when a target is imported."""
    from attnfix.bootstrap import target_modules

    _on_path(folder)
    target_modules.MODULES = MODULES
    replace_catalogues()


def replace_catalogues() -> None:
    """Those of the attnfix that is to be imported: both fixes are sglang's."""
    known = types.ModuleType("attnfix.patches.indexed")

    def of(engine: str) -> Any:
        from attnfix.compat.engines import ENGINES
        from attnfix.compat.fix import CodePath
        from attnfix.compat.gate import index, ledger

        if engine != "sglang":
            return ()
        ENGINES["sglang"] = ENGINES["sglang"]._replace(load_model=(CodePath("sglang.runner", "Runner.load_model"),))
        by_package = {fix.package: fix for fix in fixes()}
        return index.entries(ledger.path_of(fixes()[0]), by_package.__getitem__, fixes)

    known.of = of  # type: ignore[attr-defined]
    sys.modules[known.__name__] = known


class Seen(NamedTuple):
    """What the functions of the package return, and whether that is stock, or each fix wholly armed or not at all."""

    forward: int
    captured: int
    buffers: str
    plan: int
    padded: bool

    @property
    def first(self) -> str:
        return _whole((self.forward % 200 >= 100, "ours" in self.buffers, self.plan > 1000, self.padded))

    @property
    def second(self) -> str:
        return "armed" if self.forward % 10 == 7 else "stock"

    @property
    def half(self) -> bool:
        return self.first == "half" or self.captured != self.forward or self.forward not in (2, 7, 102, 107)

    @property
    def armed(self) -> bool:
        return not self.half and (self.first, self.second) == ("armed", "armed")


def _whole(parts: tuple[bool, ...]) -> str:
    return "armed" if all(parts) else "half" if any(parts) else "stock"


def use() -> Seen:
    """Serve: call everything that a fix stands on."""
    import sglang.attention as attention
    import sglang.planning as planning

    backend = attention.Backend()
    return Seen(backend.forward(1), backend.captured(1), attention.Heir().buffers(), planning.plan(1), planning.Plan.padded)


def load() -> None:
    """Import the package as an engine's start does, to the load of the model."""
    import sglang.attention
    import sglang.planning
    import sglang.runner

    sglang.runner.Runner().load_model()


NEWER = {
    "planning": "def plan(x):\n    return x + 2\n\nclass Plan:\n    padded = False\n",
    "caller": "def call(x):\n    return 2 * x\n",
}


def replace(folder: Path, module: str) -> None:
    """An upgrade in place: the file of a module is another one from now on."""
    new = folder / "new.py"
    new.write_text(NEWER[module])
    new.rename(folder / "sglang" / f"{module}.py")


def report() -> dict[str, Any]:
    """What this process sees of itself."""
    import attnfix
    from attnfix.compat.status import process_record

    seen = use()
    return {
        "seen": list(seen), "half": seen.half, "first": seen.first, "second": seen.second,
        "states": {row["fix"]: row["state"] for row in attnfix.status()},
        "reasons": {row["fix"]: row["reason"] for row in attnfix.status()},
        "records": [record["pid"] for record in process_record.read_all()],
    }  # fmt: skip


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # for scripts, which write the index
    write(Path(sys.argv[1]))
