"""`attnfix run -- CMD` with real releases, where no Python processes attnfix's `.pth`: in each, a child process imports the
engine's target module and tells what became of the fix.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import sysconfig
from importlib.metadata import requires
from pathlib import Path

import pytest

from attnfix.bootstrap.path_entry import attnfix_path_entry
from tests.support import environments
from tests.support.interpreters import PRESENT
from tests.support.required import lacking

ENGINE, RELEASE = "sglang", "0.5.10.post1"
CHILD = """
import json, multiprocessing, sys
METHOD = sys.argv[1]
ENGINE, MODULE, FIX = sys.argv[2:] or ("sglang", "sglang.srt.layers.attention.trtllm_mla_backend", "sglang.zero-kv-rows")

def child(queue):
    from attnfix.prove import stubs
    stubs.install(ENGINE)
    import attnfix, importlib, packaging
    importlib.import_module(MODULE)
    row = next(row for row in attnfix.status() if row["fix"] == FIX)
    hooks = [type(finder).__module__ for finder in sys.meta_path]
    queue.put([row["state"], hooks.count("attnfix.bootstrap.import_hook"), attnfix.__file__, packaging.__file__])

if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print("ANSWER" + json.dumps(queue.get(timeout=120)))
    process.join()
"""


@pytest.fixture(scope="module")
def volume(wheels, tmp_path_factory) -> Path:
    """What `pip install --target` makes: attnfix and what it requires, in a folder that no site processes."""
    folder = tmp_path_factory.mktemp("volume")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *map(str, wheels)]
    subprocess.run(command, check=True, capture_output=True)
    assert {"attnfix", "attnfix.pth", "rich", "packaging"} <= {path.name for path in folder.iterdir()}
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> environments.Environment:
    """An environment with the engine and without attnfix."""
    environment = environments.Environment(environments.bare(tmp_path_factory.mktemp("image")).folder, ENGINE)
    environments.add_engine(environment, ENGINE, RELEASE)
    return environment


@pytest.fixture
def script(tmp_path) -> str:
    path = tmp_path / "serve.py"
    path.write_text(CHILD)
    return str(path)


def answer(done) -> list:
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1][len("ANSWER") :])


def test_without_run_nothing_is_active_there(image, volume, script):
    """What the command is for: the same volume on PYTHONPATH alone."""
    assert answer(image.run(script, "spawn", PYTHONPATH=str(volume)))[0] == "dormant"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_target_folder_serves_every_kind_of_child(image, volume, script, method):
    state, hooks, ours, packaging = answer(image.run(str(volume / "attnfix"), "run", "--", image.python, script, method))
    assert (state, hooks) == ("installed", 1)
    assert Path(ours).is_relative_to(volume)
    assert not Path(packaging).is_relative_to(volume), "the image has a packaging of its own, and it wins"


def test_a_read_only_volume_on_pythonpath(image, volume, script):
    command = f"{image.python} -m attnfix run -- {image.python} {script} spawn"
    state, hooks, ours, _ = answer(_shell(image, read_only(volume, command), PYTHONPATH=str(volume)))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(volume)


def test_a_read_only_site(image, volume, script, tmp_path):
    command = f"{image.python} {volume}/attnfix run -- {image.python} {script} spawn"
    state, hooks, *_ = answer(_shell(image, read_only(image.folder, command), ATTNFIX_RUN_DIR=str(tmp_path / "run")))
    assert (state, hooks) == ("installed", 1)


def read_only(folder: Path, command: str) -> str:
    """`command` as it runs beside a read-only mount: in a mount namespace where this machine allows one, else by file modes."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        return f"chmod -R a-w {folder}; {command}; code=$?; chmod -R u+w {folder}; exit $code"
    mount = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && ! touch {folder}/x 2>/dev/null"
    return f"unshare -rm sh -c '{mount} && exec {command}'"


def test_a_user_without_name_and_home(image, volume, script):
    """As images that run as a user of their own: not root, in no passwd file, and with nothing to write to but /tmp."""
    if subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode:
        lacking("user namespaces", "no right to become another user here")
    command = f"unshare -U env HOME=/nonexistent {image.python} {volume}/attnfix run -- {image.python} {script} spawn"
    assert subprocess.run(["unshare", "-U", "id", "-u"], capture_output=True, text=True).stdout != "0\n"
    state, hooks, ours, _ = answer(_shell(image, command))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(volume)


def test_a_container_without_proc(image, volume, script):
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        lacking("mount namespaces", "no right to mount here")
    command = f"{image.python} {volume}/attnfix run -- {image.python} {script} spawn"
    state, hooks, *_ = answer(_shell(image, f"unshare -rm sh -c 'mount -t tmpfs none /proc && exec {command}'"))
    assert (state, hooks) == ("installed", 1)


@pytest.mark.parametrize("layout", ["copied prefix", "system site packages"])
def test_other_layouts_of_images(volume, script, tmp_path, layout):
    """A prefix whose Python is a file of its own, as conda's; an environment over another one that has the engine, as uv and
    Debian lay them out."""
    below = environments.bare(tmp_path / "below")
    environments.add_engine(environments.Environment(below.folder, ENGINE), ENGINE, RELEASE)
    options = ["--copies"] if layout == "copied prefix" else []
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, str(tmp_path / "image")], check=True)
    image = environments.Environment(tmp_path / "image", ENGINE)
    (image.site / "below.pth").write_text(f"{below.site}\n{sysconfig.get_path('purelib')}\n")
    if layout == "copied prefix":
        (image.folder / "conda-meta").mkdir()
        assert not Path(image.python).is_symlink()
    state, hooks, ours, _ = answer(image.run(str(volume / "attnfix"), "run", "--", image.python, script, "spawn"))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(volume)


def test_the_same_beside_vllm(wheels, volume, script, tmp_path):
    """The folder beside an environment of uv's, and attnfix in that environment; the engine is vLLM."""
    uv("venv", "--python", sys.executable, str(tmp_path / "image"))
    image = environments.Environment(tmp_path / "image", "vllm")
    (image.site / "below.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    environments.add_engine(image, "vllm", "0.20.2")
    asked = script, "spawn", "vllm", "vllm.model_executor.layers.attention.mla_attention", "vllm.empty-context-chunks"
    state, hooks, ours, _ = answer(image.run(str(volume / "attnfix"), "run", "--", image.python, *asked))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(volume)
    uv("pip", "install", "--python", image.python, *map(str, wheels))
    state, hooks, ours, _ = answer(image.run(*asked))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(image.site)


def uv(*words: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("uv")), *words], check=True, capture_output=True)


def test_an_environment_that_uv_has_made(wheels, script, tmp_path):
    """It has no pip: `uv pip install` puts the `.pth` where this Python reads it, and nothing else is needed."""
    uv("venv", "--python", sys.executable, str(tmp_path / "image"))
    image = environments.Environment(tmp_path / "image", ENGINE)
    (image.site / "below.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    environments.add_engine(image, ENGINE, RELEASE)
    uv("pip", "install", "--python", image.python, *map(str, wheels))
    state, hooks, ours, _ = answer(image.run(script, "spawn"))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(image.site)


@pytest.mark.parametrize("version", PRESENT)
def test_a_folder_that_uv_has_filled_for_any_python(image, wheels, script, tmp_path, version):
    """One folder for all images: wrapt's compiled part is for one Python, and others run without it."""
    uv("pip", "install", "--python", PRESENT[version], "--target", str(tmp_path / "volume"), *map(str, wheels))
    command = (str(tmp_path / "volume" / "attnfix"), "run", "--", image.python, script, "spawn")
    state, hooks, ours, _ = answer(image.run(*command))
    assert (state, hooks) == ("installed", 1) and Path(ours).is_relative_to(tmp_path / "volume")


def test_a_python_without_site_is_told_that_attnfix_is_not_active(image, volume):
    done = image.run(
        str(volume / "attnfix"), "run", "--", image.python, "-S", "-c", "import sys; print('attnfix' in sys.modules)"
    )
    assert done.stdout == "False\n" and "-S makes" in done.stderr and "not active" in done.stderr


def test_beside_a_pth_that_runs_nothing_happens_twice(engine_python, volume, script):
    environment = engine_python(ENGINE, RELEASE)
    state, hooks, ours, _ = answer(environment.run(str(volume / "attnfix"), "run", "--", environment.python, script, "spawn"))
    assert (state, hooks) == ("installed", 1)
    assert Path(ours).is_relative_to(environment.site), "the environment's own attnfix wins"


def test_run_inside_run(image, volume, script):
    once = ["run", "--", image.python, str(volume / "attnfix")]
    state, hooks, *_ = answer(image.run(once[3], *once[:3], once[3], *once[:3], script, "spawn"))
    assert (state, hooks) == ("installed", 1)


def test_a_switched_off_attnfix_stays_off(image, volume, script):
    assert answer(image.run(str(volume / "attnfix"), "run", "--", image.python, script, "spawn", ATTNFIX="0"))[0] == "off"


@pytest.mark.parametrize("where", ["site", "PYTHONPATH"])
def test_the_users_own_sitecustomize_runs_too(image, volume, script, tmp_path, where):
    folder = image.site if where == "site" else tmp_path
    own = folder / "sitecustomize.py"
    own.write_text("import sys\nsys.users_own = __file__\nimport attnfix.bootstrap.import_hook\n")
    ours = "'attnfix.bootstrap.import_hook' in sys.modules"
    look = f"import sys, sitecustomize; print(sys.users_own, sitecustomize.__file__, {ours})"
    path = {"PYTHONPATH": str(tmp_path)} if where == "PYTHONPATH" else {}
    try:
        done = image.run(str(volume / "attnfix"), "run", "--", image.python, "-c", look, **path)
        assert done.stdout.split() == [str(own), str(own), "True"], done.stderr
        assert answer(image.run(str(volume / "attnfix"), "run", "--", image.python, script, "spawn", **path))[0] == "installed"
        own.write_text("raise ValueError('of the user')")
        broken = image.run(str(volume / "attnfix"), "run", "--", image.python, "-c", "print(1)", **path)
        assert "ValueError: of the user" in broken.stderr and broken.stdout == "1\n"
    finally:
        own.unlink()


def test_nothing_else_of_the_volume_reaches_the_command(volume, tmp_path):
    """A Python that has nothing: packaging comes from the volume, the command line's own packages do not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    environment = environments.Environment(tmp_path / "env")
    look = (
        "import importlib.util as u, importlib.metadata as m, attnfix\n"
        "print(*(u.find_spec(name) is not None for name in ('packaging', 'rich')), attnfix.__version__,\n"
        "      [d.name for d in m.distributions()])"
    )
    done = environment.run(str(volume / "attnfix"), "run", "--", environment.python, "-c", look)
    assert done.stdout.split() == ["True", "False", _version(), "[]"]


def _version() -> str:
    import attnfix

    return attnfix.__version__


def test_process_signals_and_exit_code_are_the_commands(image, volume):
    run = [image.python, str(volume / "attnfix"), "run", "--"]
    assert subprocess.run([*run, "sh", "-c", "exit 37"]).returncode == 37
    assert subprocess.run([*run, "sh", "-c", "kill -PIPE $$; exit 0"]).returncode == -signal.SIGPIPE
    started = subprocess.Popen([*run, image.python, "-c", "import os; print(os.getpid()); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert int(started.stdout.readline()) == started.pid
    started.terminate()
    assert started.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize(
    "command, code, says",
    [
        ([], 2, "run needs a command"),
        (["--"], 2, "run needs a command"),
        (["--", "no-such-command-here", "x"], 127, "no-such-command-here: no such command"),
        (["--", "/"], 126, "/ cannot be run: Permission denied"),
    ],
)
def test_a_command_that_cannot_run_is_one_sentence(image, volume, command, code, says):
    done = image.run(str(volume / "attnfix"), "run", *command, check=False)
    assert done.returncode == code and done.stderr.startswith(f"attnfix: {says}") and done.stderr.count("\n") == 1


def test_a_python_that_ignores_pythonpath_is_warned_about(image, volume, tmp_path):
    def said(*command):
        done = image.run(str(volume / "attnfix"), "run", "--", *command)
        return done.stderr, done.stdout.strip()

    look = "import sys; print('attnfix.bootstrap.import_hook' in sys.modules)"
    for flags in (["-I"], ["-uE"], ["-X", "utf8", "-I"]):
        stderr, active = said(image.python, *flags, "-c", look)
        assert "ignore PYTHONPATH" in stderr and active == "False"
    assert said(image.python, "-W", "ignore", "-c", look, "-I") == ("", "True")
    script = tmp_path / "serve"
    script.write_text(f"#!{image.python} -I\n{look}\n")
    script.chmod(0o755)
    stderr, active = said(str(script))
    assert "-I makes" in stderr and active == "False"


def _shell(environment, command: str, **variables: str):
    """Run a shell command with the variables that `Environment.run` gives to Python."""
    code = f"import subprocess, sys; sys.exit(subprocess.run({command!r}, shell=True).returncode)"
    return environment.run("-c", code, **variables)


def test_what_a_serving_process_needs_is_found_beside_attnfix():
    """An image need not have it: what is required at run time, less what the command line alone imports."""
    required = {re.match(r"[\w-]+", line)[0] for line in requires("attnfix") or () if "extra ==" not in line}
    assert {*attnfix_path_entry._NEEDED} == {"attnfix", *required} - {"rich"}
