"""Kernels that fixes plan with are compiled when a backend is made: apart, for a limited time, and never where they are there.

FlashInfer is emulated: a package in a folder of its own, whose compiler writes a file, fails, or sleeps.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from attnfix.patches.sglang.eagle_swa_verify import wrap as verify
from attnfix.patches.sglang.flashinfer_soft_cap import wrap as caps
from attnfix.patches.sglang.flashinfer_swa_prefill import wrap as prefill
from attnfix.patches.sglang.shared import flashinfer_kernels
from attnfix.patches.sglang.shared.flashinfer_kernels import CAP, Kernel

MODULE = """
import os, signal, subprocess, time
from pathlib import Path
FOLDER = Path(__file__).parent.parent
LOADED = []

def stubborn():
    os.setpgrp()  # as ninja starts its commands
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Spec:
    def __init__(self, *arguments):
        self.aot_path, self.jit_library_path = None, FOLDER / (str(arguments).replace("/", "") + ".so")

    def build_and_load(self):
        how = (FOLDER / "how").read_text()
        if how == "no compiler":
            raise RuntimeError("Could not find nvcc")
        if how == "slow":
            (FOLDER / "compiler").write_text(str(subprocess.Popen(["sleep", "300"], preexec_fn=stubborn).pid))
            time.sleep(300)
        if "no proc" in how:
            from attnfix.patches.sglang.shared import flashinfer_kernels
            flashinfer_kernels.proc_is_ours = lambda: False
        if "ninja" in how:
            subprocess.run(["ninja", "-C", str(FOLDER)], stdout=subprocess.PIPE, check=True)
        with open(FOLDER / "compiled", "a") as file:
            print("begun", os.getpid(), os.environ.get("MAX_JOBS"), file=file, flush=True)
            time.sleep(0.1)
            print("done", os.getpid(), file=file)
        self.jit_library_path.touch()

gen_batch_prefill_module = gen_batch_decode_module = Spec

def get_batch_prefill_module(*arguments):
    assert Spec(*arguments).jit_library_path.exists(), "a request would wait"
    LOADED.append(arguments)

get_batch_decode_module = get_batch_prefill_module
"""
WINDOW = Kernel("fa2", "float16", "float8_e4m3fn", 256, True, False)
DECODE = Kernel("", "float16", "float16", 256, False, True)


class Target:
    reason = None

    def give_up(self, reason):
        self.reason = reason


@pytest.fixture
def flashinfer(tmp_path, monkeypatch):
    """`flashinfer(how)`: the folder of one whose compiler behaves so."""

    def make(how="compiles"):
        (tmp_path / "flashinfer").mkdir(exist_ok=True)
        for name in ("__init__", "prefill", "decode"):
            (tmp_path / "flashinfer" / f"{name}.py").write_text(MODULE if name != "__init__" else "")
        (tmp_path / "how").write_text(how)
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(flashinfer_kernels, "_loaded", set())
    monkeypatch.setattr(flashinfer_kernels, "_waited", 0.0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
        monkeypatch.delitem(sys.modules, name)
    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
        del sys.modules[name]


def compiled(folder):
    return [line.split() for line in (folder / "compiled").read_text().splitlines()]


def test_a_cold_kernel_is_compiled_by_another_process_and_loaded_here(flashinfer):
    folder, target = flashinfer(), Target()
    assert flashinfer_kernels.ready(target, [WINDOW, DECODE, WINDOW, None]) and target.reason is None
    found = compiled(folder)
    assert len(found) == 4 and all(int(line[1]) != os.getpid() for line in found)
    q, kv = torch.float16, torch.float8_e4m3fn
    assert [("fa2", q, kv, q, torch.int32, 256, 256, 0, True, False, False)] == sys.modules["flashinfer.prefill"].LOADED
    assert [(q, q, q, torch.int32, 256, 256, 0, False, True)] == sys.modules["flashinfer.decode"].LOADED


@pytest.mark.parametrize("jobs", ["12", None])
def test_kernels_are_compiled_one_after_another_with_the_compilers_that_flashinfer_starts(flashinfer, monkeypatch, jobs):
    """How many run is what ninja makes of cpuset and quota, where the user has not said it."""
    folder = flashinfer()
    if jobs:
        monkeypatch.setenv("MAX_JOBS", jobs)
    else:
        monkeypatch.delenv("MAX_JOBS", raising=False)
    flashinfer_kernels.main([list(WINDOW), list(DECODE)])
    found = compiled(folder)
    assert [line[0] for line in found] == ["begun", "done"] * 2
    assert [line[2] for line in found[::2]] == [str(jobs)] * 2


def test_a_warm_one_is_loaded_and_a_loaded_one_is_not_asked_for_again(flashinfer, monkeypatch):
    flashinfer()
    WINDOW.spec().jit_library_path.touch()
    monkeypatch.setattr(subprocess, "Popen", None)
    for _ in range(2):
        assert flashinfer_kernels.ready(Target(), [WINDOW])
    assert len(sys.modules["flashinfer.prefill"].LOADED) == 1


def test_without_a_compiler_the_fix_is_given_up_at_start(flashinfer):
    flashinfer("no compiler")
    target = Target()
    assert not flashinfer_kernels.ready(target, [WINDOW]) and "Could not find nvcc" in target.reason


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid, seconds=10):
    """Whether that process ends within so many seconds."""
    end = time.monotonic() + seconds
    while running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not running(pid)


def compiler(folder):
    """Its process, once it runs: importing torch takes a while on a busy machine."""
    end, path = time.monotonic() + 120, folder / "compiler"
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    return int(path.read_text())


@pytest.fixture
def time_is_up(monkeypatch):
    """`time_is_up(folder)`: as if it were as soon as the compiler runs."""
    wait = subprocess.Popen.wait

    def make(folder):
        monkeypatch.setattr(flashinfer_kernels, "LIMIT", 30.0)
        monkeypatch.setattr(flashinfer_kernels, "GRACE", 0.5, raising=False)
        monkeypatch.setattr(
            subprocess.Popen, "wait", lambda self, timeout=None: wait(self, timeout and compiler(folder) and 0.1)
        )

    yield make


def test_past_its_time_the_compiler_is_killed_in_whatever_group_it_runs(flashinfer, time_is_up):
    folder, target = flashinfer("slow"), Target()
    time_is_up(folder)
    assert not flashinfer_kernels.ready(target, [WINDOW]) and "not compiled within 30 s" in target.reason
    assert gone(compiler(folder))


@pytest.mark.parametrize("told", ["/proc of another namespace", "no /proc"])
def test_the_time_is_limited_where_proc_tells_nothing(flashinfer, time_is_up, monkeypatch, told):
    folder, target = flashinfer("slow"), Target()
    time_is_up(folder)
    look = os.readlink

    def other(path, *args, **kwargs):
        if path != "/proc/self":
            return look(path, *args, **kwargs)
        if told == "no /proc":
            raise FileNotFoundError(path)
        return "1"

    monkeypatch.setattr(os, "readlink", other)
    assert not flashinfer_kernels.ready(target, [WINDOW]) and "not compiled within 30 s" in target.reason
    os.kill(compiler(folder), signal.SIGKILL)


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja")
def test_past_its_time_ninja_removes_what_is_half_written(flashinfer, time_is_up):
    folder, target = flashinfer("ninja"), Target()
    command = "echo half > $out; echo $$$$ > compiler; sleep 300; echo whole > $out"
    (folder / "build.ninja").write_text(f"rule compile\n  command = {command}\nbuild kernel.o: compile\n")
    time_is_up(folder)
    assert not flashinfer_kernels.ready(target, [WINDOW]) and "not compiled within 30 s" in target.reason
    assert gone(compiler(folder)) and not (folder / "kernel.o").exists()


def test_the_time_is_limited_where_proc_shows_nobody(flashinfer, time_is_up, monkeypatch):
    """As with no file descriptor left."""
    folder, target = flashinfer("slow"), Target()
    time_is_up(folder)
    monkeypatch.setattr(flashinfer_kernels, "running_in", lambda session: [])
    assert not flashinfer_kernels.ready(target, [WINDOW]) and "not compiled within 30 s" in target.reason
    os.kill(compiler(folder), signal.SIGKILL)


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja")
@pytest.mark.parametrize("python_is_gone", [False, True])
def test_where_proc_tells_nothing_ninja_has_time_to_end_its_compilers(tmp_path, monkeypatch, python_is_gone):
    monkeypatch.setattr(flashinfer_kernels, "proc_is_ours", lambda: False)
    command = "echo half > $out; echo $$$$ > compiler; sleep 300; echo whole > $out"
    (tmp_path / "build.ninja").write_text(f"rule compile\n  command = {command}\nbuild kernel.o: compile\n")
    code = "import subprocess; subprocess.run(['ninja'])"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
    pid = compiler(tmp_path)
    if python_is_gone:
        child.kill()
        child.wait()
    flashinfer_kernels.end_group(child)
    assert child.poll() is not None and gone(pid) and not (tmp_path / "kernel.o").exists()


def test_the_compiler_ends_with_the_process_that_waits_for_it(flashinfer):
    folder = flashinfer("slow")
    code = f"from {flashinfer_kernels.__name__} import *; compile_apart([Kernel{tuple(WINDOW)}])"
    waiting = subprocess.Popen([sys.executable, "-c", code])
    found = compiler(folder)
    waiting.kill()
    waiting.wait()
    assert gone(found, 20)


@pytest.mark.skipif(not shutil.which("ninja"), reason="no ninja")
def test_ninja_has_its_time_where_the_waiting_process_is_gone_and_proc_tells_nothing(flashinfer):
    folder = flashinfer("ninja, no proc")
    command = "echo half > $out; echo $$$$ > compiler; sleep 300; echo whole > $out"
    (folder / "build.ninja").write_text(f"rule compile\n  command = {command}\nbuild kernel.o: compile\n")
    code = f"from {flashinfer_kernels.__name__} import *; compile_apart([Kernel{tuple(WINDOW)}])"
    waiting = subprocess.Popen([sys.executable, "-c", code])
    found = compiler(folder)
    waiting.kill()
    waiting.wait()
    assert gone(found, 20) and not (folder / "kernel.o").exists()


def test_what_the_process_waits_is_limited_as_a_whole(flashinfer, monkeypatch):
    flashinfer("slow")
    monkeypatch.setattr(flashinfer_kernels, "LIMIT", 30.0)
    monkeypatch.setattr(flashinfer_kernels, "_waited", 31.0)
    said = []
    monkeypatch.setattr(flashinfer_kernels, "say", said.append)
    begun = time.monotonic()
    assert not flashinfer_kernels.ready(Target(), [DECODE]) and time.monotonic() - begun < 5
    assert "-" not in "".join(said)


def test_no_module_of_the_working_folder_is_run(flashinfer, monkeypatch):
    folder, target = flashinfer(), Target()
    (folder / "cwd").mkdir()
    for name in ("json", "torch", "attnfix"):
        (folder / "cwd" / f"{name}.py").write_text("raise SystemExit('another module')")
    monkeypatch.chdir(folder / "cwd")
    monkeypatch.delenv("PYTHONPATH")  # what is found here is found there
    assert flashinfer_kernels.ready(target, [WINDOW]), target.reason


@pytest.mark.parametrize("lacks", ["gen_batch_prefill_module", "flashinfer"])
def test_of_another_flashinfer_nothing_is_asked(flashinfer, lacks):
    """Its plans are guarded."""
    folder, target = flashinfer(), Target()
    for path in (folder / "flashinfer").iterdir():
        path.unlink()
    if lacks != "flashinfer":
        (folder / "flashinfer" / "prefill.py").write_text("")
        (folder / "flashinfer" / "__init__.py").write_text("")
    assert flashinfer_kernels.ready(target, [WINDOW]) and target.reason is None


# Which kernels a deployment needs


def backend(**given):
    paged = SimpleNamespace(_backend="fa2")
    ragged = SimpleNamespace(_backend="fa3", begin_forward=None)
    return SimpleNamespace(
        prefill_wrappers_paged=[paged] * 2, prefill_wrappers_verify=[paged] * 2, prefill_wrapper_ragged=ragged,
        decode_wrappers=[SimpleNamespace(use_tensor_cores=False)] * 2, is_multimodal=False, **given,
    )  # fmt: skip


def runner(algorithm=None, context=4096, **given):
    return SimpleNamespace(
        server_args=SimpleNamespace(speculative_algorithm=algorithm), model_config=SimpleNamespace(context_len=context), **given
    )


def updater(**given):
    return SimpleNamespace(q_data_type=torch.bfloat16, data_type=torch.float8_e4m3fn, head_dim=128, **given)


BF16, FP8 = "bfloat16", "float8_e4m3fn"
TARGET = SimpleNamespace(function=lambda: None)


@pytest.mark.parametrize(
    "learnt, made, model_runner, wanted",
    [
        ((512, False, False), {}, {}, True),
        ((512, False, False), {}, {"prefill_attention_backend_str": "flashinfer"}, True),
        ((512, False, False), {}, {"prefill_attention_backend_str": "fa3"}, False),
        ((512, False, False), {}, {"prefill_attention_backend_str": "fa3", "is_draft_worker": True}, True),
        ((512, False, False), {}, {"context": 512}, True),  # cached prefixes are misread at any length
        ((512, True, True), {}, {"context": 512}, False),
        ((512, True, True), {"use_paged": True}, {}, False),  # the engine plans the window
        ((512, False, True), {"use_paged": True}, {}, True),
        ((512, False, False), {"is_dllm_model": True}, {}, False),
    ],
)
def test_prefill_with_a_window(learnt, made, model_runner, wanted):
    for given, capped in (({}, False), ({CAP: 50.0}, True)):
        found = prefill.kernels(TARGET, updater(**given), backend(**made), runner(**model_runner), prefill.Learnt(*learnt))
        assert found == ([Kernel("fa2", BF16, FP8, 128, True, capped)] if wanted else [])


@pytest.mark.parametrize("algorithm, wanted", [(None, False), ("EAGLE", True), ("NGRAM", True), ("DFLASH", False)])
def test_verification_with_a_window(algorithm, wanted):
    found = verify.kernels(updater(), backend(), runner(algorithm))
    assert found == ([Kernel("fa2", BF16, FP8, 128, True, False)] if wanted else [])


def test_a_soft_cap_in_all_plans():
    paged, ragged = Kernel("fa2", BF16, FP8, 128, False, True), Kernel("fa3", BF16, BF16, 128, False, True)
    decode = Kernel("", BF16, FP8, 128, False, True)
    assert caps.kernels(updater(), backend(), runner()) == [paged, ragged, decode]
    made = backend()
    made.prefill_wrapper_ragged._backend, made.decode_wrappers[0].use_tensor_cores = "cutlass", True
    made.decode_wrappers[0]._backend = "fa2"
    assert caps.kernels(updater(), made, runner()) == [paged, paged], "CUTLASS has no kernel with one"
    assert caps.kernels(updater(), backend(), runner(prefill_attention_backend_str="fa3")) == [decode]


def test_what_flashinfer_chooses_by_itself(flashinfer):
    folder = flashinfer()
    made = SimpleNamespace(_backend="auto", device="cuda:0")
    assert flashinfer_kernels.of_prefill(updater(), made, soft_cap=True) is None, "another FlashInfer: nobody can say"
    for parameters in ("", ", *, head_dim_qk=None, head_dim_vo=None"):
        sys.modules.pop("flashinfer.utils", None)
        (folder / "flashinfer" / "utils.py").write_text(
            f"def determine_attention_backend(device, position, reduction, mask, q, kv{parameters}):\n"
            f"    return 'fa3' if device == 'cuda:0' and q != kv{' and head_dim_qk == 128' if parameters else ''} else 'fa2'\n"
        )
        sys.path_importer_cache.clear()
        assert flashinfer_kernels.of_prefill(updater(), made, soft_cap=True) == Kernel("fa3", BF16, FP8, 128, False, True)


@pytest.mark.parametrize("chooses, backend", [("", "fa2"), ("determine_attention_backend = None", "fa3")])
def test_decode_on_tensor_cores_takes_fa2_where_flashinfer_lets_it_choose_nothing(flashinfer, chooses, backend):
    folder = flashinfer()
    (folder / "flashinfer" / "decode.py").write_text(chooses)
    (folder / "flashinfer" / "utils.py").write_text("def determine_attention_backend(*arguments): return 'fa3'")
    made = SimpleNamespace(_backend="auto", device="cuda:0", use_tensor_cores=True)
    assert flashinfer_kernels.of_decode(updater(), made) == Kernel(backend, BF16, FP8, 128, False, True)
    assert flashinfer_kernels.of_prefill(updater(), made, soft_cap=True) == Kernel("fa3", BF16, FP8, 128, False, True)
