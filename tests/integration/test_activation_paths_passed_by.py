"""Import hooks that stand before attnfix's own, and copies of an engine's module that are nobody's: what is loaded past the
`.pth` is seen all the same, in the same process, and a copy leaves the engine's own module its fixes."""

from __future__ import annotations

import pytest

TARGETS = {
    "sglang": ("sglang.srt.model_executor.forward_batch_info", "sglang.srt.layers.attention.trtllm_mla_backend"),
    "vllm": ("vllm.model_executor.layers.attention.mla_attention",),
}
FIX = {"sglang": "sglang.zero-kv-rows", "vllm": "vllm.empty-context-chunks"}
ENGINES = [("sglang", "0.5.10.post1"), ("vllm", "0.20.2")]
# Instruments the syntax tree of the modules it is given, and asks no finder but Python's own
TYPEGUARD = "from typeguard import install_import_hook\ninstall_import_hook({modules!r})\n"
# Compiles as Python does what its path hook is given; asked through Python's own finder, which ours asks
BEARTYPE = (
    "from beartype import BeartypeConf\nfrom beartype.claw import beartype_packages\n"
    "beartype_packages({modules!r}, conf=BeartypeConf(violation_type=UserWarning))\n"
)
# Of typeguard's shape, and changes nothing
PLAIN = """
import importlib.machinery, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path, target) if name.startswith({modules!r}) else None
sys.meta_path.insert(0, Finder())
"""


def row(fix):
    return f"import attnfix\nrow = next(row for row in attnfix.status() if row['fix'] == {fix!r})\n"


def loaded(engine, hook):
    """Source text: every target module imported past attnfix, and then anything else."""
    imports = "".join(f"import {module}\n" for module in TARGETS[engine])
    return hook.format(modules=TARGETS[engine]) + imports + "import wave\n"


@pytest.mark.parametrize("engine, release", ENGINES)
def test_a_finder_of_others_that_loads_targets_without_us(engine_fork, engine, release):
    code = loaded(engine, PLAIN) + row(FIX[engine]) + "answer([row['state'], row['reason'], type(sys.meta_path[0]).__module__])"
    state, reason, first = engine_fork(engine, release).evaluate(code)
    assert state == "installed" and first == "attnfix.bootstrap.import_hook", reason


@pytest.mark.parametrize("hook", [TYPEGUARD, BEARTYPE], ids=["typeguard", "beartype"])
@pytest.mark.parametrize("engine, release", ENGINES)
def test_code_that_is_instrumented_on_its_way_in_is_not_what_was_judged(engine_fork, engine, release, hook):
    state, reason = engine_fork(engine, release).evaluate(
        loaded(engine, hook) + row(FIX[engine]) + "answer([row['state'], row['reason']])"
    )
    assert state == "conflict", reason


@pytest.mark.parametrize("engine, release", ENGINES)
def test_strict_refuses_what_was_loaded_past_us(engine_fork, engine, release):
    stubs = f"from attnfix.prove import stubs\nstubs.install({engine!r})\n"
    script = stubs + loaded(engine, TYPEGUARD) + "print('served')"
    done = engine_fork(engine, release).run("-c", script, check=False, ATTNFIX_STRICT="1")
    assert done.returncode == 78 and "served" not in done.stdout, done.stdout + done.stderr
    assert "attnfix: refusing" in done.stderr


COPY = """
import importlib.util, sys
spec = importlib.util.find_spec({module!r})
copy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(copy)
sys.modules["private"] = copy
assert {module!r} not in sys.modules
"""
# A target in each whose body can run twice in a process, and the fix
COPIED = [
    ("sglang", "0.5.10.post1", "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin", "sglang.zero-kv-rows"),
    ("vllm", "0.20.2", "vllm.v1.attention.backends.mla.triton_mla", "vllm.dcp-empty-shard"),
]


@pytest.mark.parametrize("engine, release, module, fix", COPIED)
def test_a_private_copy_of_a_target_module_is_no_concern_of_the_fix(engine_fork, engine, release, module, fix):
    code = f"import {engine}\n" + COPY.format(module=module) + row(fix) + "before = row['state'], row['reason']\n"
    code += f"import {module} as real\n" + row(fix) + "answer([before, [row['state'], row['reason']], real is not copy])"
    before, after, other = engine_fork(engine, release).evaluate(code)
    assert before[0] in ("dormant", "pending") and after[0] in ("pending", "installed") and other, (before, after)


@pytest.mark.parametrize("engine, release, module, fix", COPIED)
def test_a_copy_that_is_made_the_module_afterwards_is_seen(engine_fork, engine, release, module, fix):
    code = f"import {engine}\n" + COPY.format(module=module) + f"sys.modules[{module!r}] = copy\nimport wave\n" + row(fix)
    state, reason = engine_fork(engine, release).evaluate(code + "answer([row['state'], row['reason']])")
    assert state in ("pending", "installed"), reason


# What programs import before their engine: makes a page, and puts a finder before ours
BEFORE = "import prometheus_client, setuptools\n"


@pytest.mark.parametrize("engine, release", ENGINES)
def test_strict_lets_an_engine_serve_behind_finders_that_load_none_of_its_modules(engine_fork, engine, release):
    stubs = f"from attnfix.prove import stubs\nstubs.install({engine!r})\n"
    script = BEFORE + stubs + "".join(f"import {module}\n" for module in TARGETS[engine]) + "import wave\nprint('served')"
    done = engine_fork(engine, release).run("-c", script, check=False, ATTNFIX_STRICT="1")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["served"]), done.stderr
    assert "not active" not in done.stderr
