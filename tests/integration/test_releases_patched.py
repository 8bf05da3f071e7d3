"""Real releases beside the installed wheel: patched by having it installed, or left alone."""

from __future__ import annotations

import pytest

from attnfix.patches.catalogue import FIXES

SGLANG = ("sglang.srt.layers.attention.trtllm_mla_backend", "TRTLLMMLABackend.forward_extend")
VLLM_OLD = ("vllm.v1.attention.backends.mla.common", "MLACommonImpl._run_prefill_context_chunk_trtllm_ragged")
VLLM = ("vllm.model_executor.layers.attention.mla_attention", "MLACommonImpl._run_prefill_context_chunk_trtllm_ragged")
VLLM_BACKEND = (
    "vllm.v1.attention.backends.mla.prefill.trtllm_ragged",
    "TrtllmRaggedPrefillBackend.run_prefill_context_chunk",
)
VLLM_NEW = ("vllm.model_executor.layers.attention.mla_attention", "MLACommonBaseImpl._compute_prefill_context")

CASES = [
    ("sglang", "0.5.2", *SGLANG, "not affected"),
    ("sglang", "0.5.3", *SGLANG, "installed"),
    ("sglang", "0.5.10.post1", *SGLANG, "installed"),
    ("sglang", "0.5.11", *SGLANG, "fixed upstream"),
    ("vllm", "0.11.1", *VLLM_OLD, "not affected"),
    ("vllm", "0.19.1", *VLLM, "not affected"),
    ("vllm", "0.20.2", *VLLM, "installed"),
    ("vllm", "0.25.1", *VLLM_BACKEND, "installed"),
    ("vllm", "0.33.0", *VLLM_NEW, "fixed upstream"),
]
FIX = {"sglang": "sglang.zero-kv-rows", "vllm": "vllm.empty-context-chunks"}

LOOK = """
import importlib
module = importlib.import_module({module!r})
owner, name = {qualname!r}.split(".")
function = vars(getattr(module, owner))[name]
import attnfix
row = next(row for row in attnfix.status() if row["fix"] == {fix!r})
stock = getattr(function, "__wrapped__", function)
answer(dict(state=row["state"], reason=row["reason"], plain=stock is function,
            code=stock.__code__.co_filename.endswith(module.__file__.rpartition("/")[2])))
"""


def look(environment, engine, module, qualname, **variables):
    """With one fix of each engine alone: others have corrections on the same functions."""
    variables = {fix.switch: "0" for fix in FIXES if fix.id not in FIX.values()} | variables
    return environment.evaluate(LOOK.format(module=module, qualname=qualname, fix=FIX[engine]), **variables)


@pytest.mark.parametrize("engine, release, module, qualname, state", CASES)
def test_importing_the_engine_is_enough(engine_fork, engine, release, module, qualname, state):
    seen = look(engine_fork(engine, release), engine, module, qualname)
    assert seen["state"] == state, seen["reason"]
    assert seen["plain"] is (state != "installed")
    assert seen["code"]


@pytest.mark.parametrize("engine, release, module, qualname", [case[:4] for case in CASES if case[4] == "installed"][1::2])
@pytest.mark.parametrize("switch", ["ATTNFIX", "fix"])
def test_switched_off_leaves_the_functions_untouched(engine_fork, engine, release, module, qualname, switch):
    name = "ATTNFIX" if switch == "ATTNFIX" else "ATTNFIX_" + FIX[engine].replace(".", "_").replace("-", "_").upper()
    seen = look(engine_fork(engine, release), engine, module, qualname, **{name: "0"})
    assert seen["plain"]
    assert seen["state"] == "off" and seen["reason"] == f"{name}=0"
