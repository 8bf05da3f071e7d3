"""What the chunked context of an MLA prefill calls on its way, by place: witnesses of the fixes whose targets call it."""

from __future__ import annotations

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_UTILS = "vllm.v1.attention.backends.utils"

#: To build the metadata
BUILDING = (
    f"{_UTILS}:split_decodes_and_prefills",
    f"{_UTILS}:get_dcp_local_seq_lens",
    "vllm.utils.math_utils:cdiv",
    "vllm.utils.math_utils:round_down",
)
#: To compute a chunk
COMPUTING = (
    f"{_COMMON}:MLACommonImpl._concat_k_nope_k_pe",
    f"{_MLA}:MLACommonImpl._concat_k_nope_k_pe",
    f"{_MLA}:MLACommonBaseImpl._concat_k_nope_k_pe",
    f"{_COMMON}:reorg_kvcache",
    f"{_MLA}:reorg_kvcache",
    "vllm.utils.torch_utils:is_quantized_kv_cache",
)
