"""The end-to-end runs' plugin in real releases: it opens the ragged path, FlashInfer stays absent, both fixes stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.serving import processes, ragged_stand_in

CODE = """
import importlib.util, inspect, torch
from importlib.metadata import entry_points
import attnfix
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backends.mla.prefill import trtllm_ragged
from vllm.v1.attention.backends.mla.prefill.selector import MLAPrefillSelectorConfig

dims = inspect.signature(MLAPrefillSelectorConfig).parameters
model = {"is_r1_compatible": True}
if "mla_dimensions" in dims:
    from vllm.v1.attention.backends.mla.prefill.base import MLADimensions
    model = {"mla_dimensions": MLADimensions(qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)}
model = MLAPrefillSelectorConfig(dtype=torch.bfloat16, **model)
backend, hopper = trtllm_ragged.TrtllmRaggedPrefillBackend, DeviceCapability(9, 0)
before = len(backend.validate_configuration(hopper, model))
(point,) = entry_points(group="vllm.general_plugins", name=NAME)
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "attnfix.prove.stubs"]
for name in [name for name in sys.modules if name.startswith("flashinfer")]:
    del sys.modules[name]
point.load()()
from flashinfer.prefill import trtllm_ragged_attention_deepseek as function
absent = importlib.util.find_spec("flashinfer") is None
stands = [row["fix"] for row in attnfix.status() if row["state"] == "installed"]
answer([before > 0, backend.validate_configuration(hopper, model), absent, function.__module__, stands])
"""


@pytest.mark.parametrize("release", ["0.22.1", "0.25.1"])
def test_the_plugin_opens_the_ragged_path(engine_fork, tmp_path, release):
    folder = processes.plugin(Path(ragged_stand_in.__file__), tmp_path / "plugin")
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); NAME = {ragged_stand_in.NAME!r}\n{CODE}"
    closed, reasons, absent, module, stands = engine_fork("vllm", release).evaluate(code)
    assert closed and reasons == [] and absent and module == "ragged_stand_in"
    assert {"vllm.empty-context-chunks", "vllm.lse-log-base"} <= set(stands)
