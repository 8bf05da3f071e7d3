"""The doctor's table of vLLM's backends of MLA: from the sources of a release that is made up."""

from __future__ import annotations

import pytest

from scripts.doctor_corpus.vllm_tables import first_of_mla

PLATFORM = """
@cache
def _get_backend_priorities(use_mla, device_capability, num_heads=None, kv_cache_dtype=None):
    from vllm.elsewhere import is_quantized
    if use_mla and device_capability.major == 10:
        return [AttentionBackendEnum.OF_SPARSE_MLA, AttentionBackendEnum.FLASHINFER_MLA, AttentionBackendEnum.TRITON_MLA]
    if is_quantized(kv_cache_dtype):
        return []
    return [AttentionBackendEnum.FLASH_ATTN_MLA, AttentionBackendEnum.FLASHMLA, AttentionBackendEnum.TRITON_MLA]
"""
BACKEND = """
class Backend:
    supported_kv_cache_dtypes: ClassVar[list[CacheDType]] = {dtypes}

    @classmethod
    def supports_compute_capability(cls, capability: DeviceCapability) -> bool:
        return {serves}
"""
BACKENDS = {
    "flashattn_mla": (["auto"], "capability.major == 9"),
    "flashmla": (["auto", "fp8"], "capability.major == 9"),
    "flashinfer_mla": (["auto", "fp8"], "capability.major == 10"),
    "triton_mla": (["auto", "fp8"], "True"),
}


@pytest.mark.parametrize("kv_cache, hopper", [("auto", "FLASH_ATTN_MLA"), ("fp8", "FLASHMLA")])
def test_the_first_backend_that_serves_generation_and_cache(tmp_path, kv_cache, hopper):
    (tmp_path / "cuda.py").write_text(PLATFORM)
    for name, (dtypes, serves) in BACKENDS.items():
        (tmp_path / f"{name}.py").write_text(BACKEND.format(dtypes=dtypes, serves=serves))
    found = first_of_mla(tmp_path / "cuda.py", tmp_path, kv_cache)
    assert found == {8: "TRITON_MLA", 9: hopper, 10: "FLASHINFER_MLA", 12: "TRITON_MLA"}
