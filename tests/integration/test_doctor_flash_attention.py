"""Which FlashAttention doctor expects, held against the engines' own choice: as in test_doctor_sources.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from packaging.version import Version

from attnfix.compat.doctor import gpus
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import Launch
from attnfix.patches.vllm.padded_v_merge import facts
from tests.integration.test_doctor_sources import GLM_DIMS, R1_DIMS, Machine, function


@pytest.mark.parametrize("release", ["0.21.0", "0.23.0", "0.24.0", "0.25.1"])
@pytest.mark.parametrize("invariant", [False, True])
def test_which_flash_attention_computes_mla_prefill_of_vllm(release, invariant):
    """By the release's own function, for the head size of a query; version 3 on Hopper and 4 need no padding."""
    for gpu in ("a100", "l40s", "h100", "b200", "b300", "rtx5090"):
        for dims in (R1_DIMS, GLM_DIMS):
            for asked in (None, 2, 3, 4):
                launch = Launch("vllm", options={"attention-config.flash_attn_version": str(asked)} if asked else {})
                launch.variables = {"VLLM_BATCH_INVARIANT": "1"} if invariant else {}
                it = Deployment("vllm", Version(release), dims, gpus.named(gpu), launch)
                head_size = dims["qk_nope_head_dim"] + dims["qk_rope_head_dim"]
                version = flash_attention_of_vllm(release, it.gpu.generation, head_size, asked, invariant)
                needs = version is None or not ((version == 3 and it.gpu.generation == 9) or version == 4)
                ours = facts.pads_values(it)
                assert ours.values == ("on" if needs else "off",), (gpu, dims, asked, ours, version)


def flash_attention_of_vllm(release: str, major: int, head_size: int, asked: int | None, invariant: bool) -> int | None:
    supported = {2: major >= 8, 3: major == 9, 4: major in (9, 10, 11)}
    config = SimpleNamespace(attention_config=SimpleNamespace(flash_attn_version=asked), model_config=None)
    machine = Machine(major * 10, envs=SimpleNamespace(VLLM_BATCH_INVARIANT=invariant), is_fa_version_supported=supported.get,
                      fa_version_unsupported_reason=str, get_current_vllm_config_or_none=lambda: config)  # fmt: skip
    says = lambda *args, **kwargs: None  # noqa: E731
    machine["logger"] = SimpleNamespace(info_once=says, warning_once=says, error=says)
    machine["current_platform"] = SimpleNamespace(
        is_xpu=lambda: False, is_rocm=lambda: False, get_device_capability=lambda: SimpleNamespace(major=major)
    )
    return function("vllm", release, "get_flash_attn_version", ("v1/attention/backends/fa_utils.py",), machine)(
        head_size=head_size
    )
