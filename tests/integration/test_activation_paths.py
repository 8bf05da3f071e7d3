"""Every way into a process: the `.pth`, the engines' own plugin loaders, children, late and repeated activation."""

from __future__ import annotations

import shutil

import pytest

ROW = """
import attnfix
def row(fix): return next(row for row in attnfix.status() if row["fix"] == fix)
"""
IMPORT = {
    "sglang": "import sglang.srt.layers.attention.trtllm_mla_backend\n",
    "vllm-old": "import vllm.v1.attention.backends.mla.common\n",
    "vllm": "import vllm.model_executor.layers.attention.mla_attention\n",
}
LOAD_PLUGINS = {
    "sglang": "from sglang.srt.plugins import load_plugins\nload_plugins()\n",
    "vllm": "from vllm.plugins import load_general_plugins\nload_general_plugins()\n",
}
FIX = {"sglang": "sglang.zero-kv-rows", "vllm": "vllm.empty-context-chunks"}


@pytest.fixture
def without_pth(engine_python):
    """`without_pth(engine, release)`: the environment with the `.pth` taken away for the duration of a test."""
    hidden = []

    def get(engine, release):
        environment = engine_python(engine, release)
        pth = environment.site / "attnfix.pth"
        hidden.append((pth, pth.read_text()))
        pth.unlink()
        return environment

    yield get
    for pth, text in hidden:
        pth.write_text(text)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "engine, release, module, state",
    [
        ("vllm", "0.11.1", "vllm-old", "not affected"),
        ("vllm", "0.20.2", "vllm", "installed"),
        ("vllm", "0.33.0", "vllm", "fixed upstream"),
        ("sglang", "0.5.11", "sglang", "fixed upstream"),
        ("sglang", "0.5.23", "sglang", "fixed upstream"),
    ],
)
def test_the_engines_own_plugin_loader_alone_activates_us(without_pth, engine, release, module, state):
    environment = without_pth(engine, release)
    code = (
        "import sys\nclosed = 'attnfix.bootstrap.import_hook' not in sys.modules\n"
        + LOAD_PLUGINS[engine]
        + IMPORT[module]
        + ROW
    )
    assert environment.evaluate(code + f"answer([closed, row({FIX[engine]!r})['state']])") == [True, state]


def test_the_pth_alone_activates_us(engine_python, tmp_path):
    environment = engine_python("vllm", "0.20.2")
    (points,) = environment.site.glob("attnfix-*.dist-info/entry_points.txt")
    shutil.move(points, tmp_path / "points")
    try:
        code = LOAD_PLUGINS["vllm"] + IMPORT["vllm"] + ROW + "answer(row('vllm.empty-context-chunks')['state'])"
        assert environment.evaluate(code) == "installed"
    finally:
        shutil.move(tmp_path / "points", points)


def test_both_activation_paths_and_a_second_activation_install_once(engine_python):
    code = (
        LOAD_PLUGINS["vllm"] + "import attnfix\nattnfix.activate()\n" + IMPORT["vllm"] + "attnfix.activate()\n" + ROW
        + "from vllm.model_executor.layers.attention.mla_attention import MLACommonImpl as M\n"
        + "f = vars(M)['_run_prefill_context_chunk_trtllm_ragged']\nimport sys\n"
        + "finders = [f for f in sys.meta_path if type(f).__module__ == 'attnfix.bootstrap.import_hook']\n"
        + "from attnfix.compat.arming.wrapper import WrappedTarget\nwrapper = WrappedTarget.of(f)\n"
        + "answer([row('vllm.empty-context-chunks')['state'], WrappedTarget.of(wrapper.wrapped) is None,"
        + " len(wrapper.links), len(finders)])"
    )  # fmt: skip
    # Two fixes have a correction there: neither twice
    assert engine_python("vllm", "0.20.2").evaluate(code) == ["installed", True, 2, 1]


def test_no_door_no_patch(without_pth):
    environment = without_pth("sglang", "0.5.10.post1")
    code = IMPORT["sglang"] + ROW + "answer(row('sglang.zero-kv-rows')['state'])"
    assert environment.evaluate(code) == "dormant"


def test_activated_after_the_target_module_was_imported(without_pth):
    environment = without_pth("sglang", "0.5.10.post1")
    code = IMPORT["sglang"] + "import attnfix\nattnfix.activate()\n" + ROW + "answer(row('sglang.zero-kv-rows')['state'])"
    assert environment.evaluate(code) == "installed"


def test_variables_set_inside_the_script_count(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    code = "import os\nos.environ['ATTNFIX_SGLANG_ZERO_KV_ROWS'] = '0'\n" + IMPORT["sglang"] + ROW
    assert environment.evaluate(code + "answer(row('sglang.zero-kv-rows')['state'])") == "off"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_are_patched_and_have_records_of_their_own(engine_python, method, tmp_path):
    environment = engine_python("sglang", "0.5.10.post1")
    script = tmp_path / "script.py"
    script.write_text(
        "import json, multiprocessing, os, sys\n"
        "from attnfix.prove import stubs\n"
        "def child(queue):\n"
        "    stubs.install('sglang')\n"
        f"    {IMPORT['sglang'].strip()}\n"
        "    import attnfix\n"
        "    from attnfix.compat.status import process_record\n"
        "    row = next(row for row in attnfix.status() if row['fix'] == 'sglang.zero-kv-rows')\n"
        "    mine = [r['fixes'][0]['state'] for r in process_record.read_all() if r['pid'] == os.getpid()]\n"
        "    queue.put((row['state'], mine))\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    if sys.argv[1] == 'loaded':\n"
        "        stubs.install('sglang')\n"
        f"        {IMPORT['sglang'].strip()}\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n"
        "    process.start()\n"
        "    print('ANSWER' + json.dumps(queue.get(timeout=120)))\n"
        "    process.join()\n"
    )
    loaded = "loaded" if method == "fork" else "fresh"
    done = environment.run(str(script), loaded, ATTNFIX_RUN_DIR=str(tmp_path / "run"))
    assert 'ANSWER["installed", ["installed"]]' in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "engine, release, module, variable, value, state",
    [
        ("vllm", "0.20.2", "vllm", "VLLM_PLUGINS", "other", "off"),
        ("vllm", "0.20.2", "vllm", "VLLM_PLUGINS", "", "off"),
        ("vllm", "0.20.2", "vllm", "VLLM_PLUGINS", "other,attnfix", "installed"),
        ("sglang", "0.5.10.post1", "sglang", "SGLANG_PLUGINS", "other", "off"),
        ("sglang", "0.5.10.post1", "sglang", "SGLANG_PLUGINS", "", "installed"),
    ],
)
def test_an_allow_list_is_respected_by_every_door(engine_fork, engine, release, module, variable, value, state):
    environment = engine_fork(engine, release)
    code = IMPORT[module] + ROW + f"answer(row({FIX[engine]!r})['state'])"
    assert environment.evaluate(code, **{variable: value}) == state
    if state == "off":
        script = f"from attnfix.prove import stubs\nstubs.install({engine!r})\n{IMPORT[module]}"
        said = environment.run("-c", script, ATTNFIX_LOG="warning", **{variable: value}).stderr
        assert said.count("leaves attnfix out") == 1 and "add the word attnfix" in said


def test_an_isolated_interpreter_is_patched_too(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    code = "from attnfix.prove import stubs\nstubs.install('sglang')\n" + IMPORT["sglang"] + ROW
    done = environment.run("-I", "-c", code + "print(row('sglang.zero-kv-rows')['state'])")
    assert "installed" in done.stdout


def test_interpreter_start_adds_small_files_and_nothing_else(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    code = "import sys; print(' '.join(sorted(sys.modules)))"
    pth = environment.site / "attnfix.pth"
    text = pth.read_text()
    with_it = set(environment.run("-c", code).stdout.split())
    pth.unlink()
    try:
        without = set(environment.run("-c", code).stdout.split())
    finally:
        pth.write_text(text)
    assert with_it - without - {"__future__"} == {"attnfix", "attnfix.bootstrap", "attnfix.bootstrap.import_hook"}


def test_another_finder_that_asks_every_finder_does_not_end_in_a_circle(engine_python):
    code = (
        "import sys\n"
        "class Other:\n"
        "    busy = False\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        for finder in sys.meta_path:\n"
        "            if finder is not self and (spec := finder.find_spec(name, path, target)): return spec\n"
        "sys.meta_path.insert(0, Other())\n" + IMPORT["sglang"] + ROW + "answer(row('sglang.zero-kv-rows')['state'])"
    )
    assert engine_python("sglang", "0.5.10.post1").evaluate(code) == "installed"
