"""What an operator who insists gets: a refusal to start, or a start."""

from __future__ import annotations

import pytest

LOAD = "from attnfix.prove import stubs\nstubs.install('sglang')\n"
TARGET = "import sglang.srt.layers.attention.trtllm_mla_backend as module\n"
# Another patcher that was here first, on a module that was loaded before attnfix could see it
OTHER = (
    "import sys\nfrom attnfix.bootstrap import import_hook\n"
    "finder = sys.meta_path.pop(0)\n"
    "import sglang.srt.model_executor.forward_batch_info\n" + TARGET + "def theirs(self, *args, **kwargs): pass\n"
    "module.TRTLLMMLABackend.forward_extend = theirs\n"
    "sys.meta_path.insert(0, finder)\nimport attnfix\nattnfix.activate()\n"
)


@pytest.mark.parametrize("variable", ["ATTNFIX_STRICT", "ATTNFIX_SGLANG_ZERO_KV_ROWS"])
def test_a_required_fix_that_cannot_stand_ends_the_process(engine_python, variable):
    environment = engine_python("sglang", "0.5.10.post1")
    done = environment.run("-c", LOAD + OTHER + "print('served')", check=False, **{variable: "1"})
    assert done.returncode == 78 and "served" not in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("attnfix: refusing")]
    assert "sglang.zero-kv-rows" in line and "theirs" in line


def test_without_insisting_it_is_a_warning_and_the_engine_goes_on(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    done = environment.run("-c", LOAD + OTHER + "print('served')", ATTNFIX_LOG="info")
    assert "served" in done.stdout
    assert done.stderr.count("WARNING [") == 1 and "theirs" in done.stderr


@pytest.mark.parametrize("release", ["0.5.10.post1", "0.5.11"])
def test_strict_lets_a_sound_process_start(engine_python, release):
    done = engine_python("sglang", release).run("-c", LOAD + TARGET + "print('served')", ATTNFIX_STRICT="1")
    assert "served" in done.stdout


@pytest.mark.parametrize("variable, code", [("ATTNFIX_STRICT", 78), ("ATTNFIX_SGLANG_ZERO_KV_ROWS", 78), ("ATTNFIX_LOG", 0)])
def test_an_attnfix_that_does_not_work_itself_is_no_reason_to_serve(engine_python, variable, code):
    broken = "import sys\nsys.modules['attnfix.compat.arming.activation'] = None\n"
    done = engine_python("sglang", "0.5.10.post1").run(
        "-c", LOAD + broken + TARGET + "print('served')", check=False, **{variable: "1"}
    )
    assert done.returncode == code and ("served" in done.stdout) is (code == 0)
    assert "attnfix: not active" in done.stderr
