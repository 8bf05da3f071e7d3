"""vllm.flashmla-fp8-graph, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, GRAPHS, KV_SCALES

from . import wrap

_FLASHMLA = "vllm.v1.attention.backends.mla.flashmla"
_BUILDER = f"{_FLASHMLA}:FlashMLAMetadataBuilder"
_MLA, _COMMON = "vllm.model_executor.layers.attention.mla_attention", "vllm.v1.attention.backends.mla.common"
_OPS = "vllm.v1.attention.ops.flashmla", "vllm.attention.ops.flashmla"
_UTILS = "vllm.v1.attention.backends.utils"

FIX = Fix(
    id="vllm.flashmla-fp8-graph",
    title="Answers turn into garbage after 64 tokens with an FP8 MLA cache on Hopper",
    symptom=(
        "A model with MLA (DeepSeek, Kimi, GLM) starts an answer well and goes on with garbage once a request is longer than "
        "64 tokens. It is served with --kv-cache-dtype fp8 on Hopper. With --enforce-eager or without the FP8 cache it is "
        "right. No error."
    ),
    symptoms=(GARBAGE, GRAPHS, KV_SCALES),
    cause=(
        "Which part of the KV cache each SM attends to is computed for every step, into new memory. A full CUDA graph reads it "
        "where it lay at capture, when each request had one token: what lies beyond the first 64 is never attended to, or "
        "whatever now lies in that memory decides."
    ),
    correction="The schedule is copied into the buffers that the engine allocates for it and does not use, as before 0.15.0.",
    upstream=Upstream("vllm-project/vllm", pull=35175, issue=33638),
    hardware="Hopper (FLASHMLA with an FP8 KV cache and full CUDA graphs, which are the default)",
    default=True,
    default_reason="silent wrong output; later releases copy the same two tensors",
    targets=(Target(wrap.build_decode, needed=wrap.keeps_no_address, paths=(f"{_BUILDER}._build_decode",)),),
    # What makes the buffers, what builds around the schedule, and what reads it
    witnesses=(
        f"{_BUILDER}.__init__",
        f"{_FLASHMLA}:FlashMLADecodeMetadata",
        f"{_FLASHMLA}:FlashMLAImpl._forward_decode",
        f"{_FLASHMLA}:FlashMLAImpl.forward_mqa",
        f"{_MLA}:MLACommonMetadataBuilder.build",
        f"{_COMMON}:MLACommonMetadataBuilder.build",
        f"{_MLA}:MLACommonMetadataBuilder.build_for_cudagraph_capture",
        f"{_COMMON}:MLACommonMetadataBuilder.build_for_cudagraph_capture",
        *(f"{module}:get_mla_metadata_dense_fp8" for module in _OPS),
        f"{_UTILS}:split_decodes_and_prefills",
        f"{_UTILS}:reshape_query_for_spec_decode",
    ),
    # 0.10.2 cannot import its module where vLLM is not compiled; its code for graphs is that of 0.11.0
    examined=(">=0.10.0,!=0.10.2",),
    cost="Two small copies on the GPU per decode step and KV cache group; no memory.",
    avoid=(
        "Start with `--compilation-config.cudagraph_mode PIECEWISE`: each step uses its own tile schedule; decode gets slower."
    ),
    expect=(
        "On one replica, ask for an answer of a few hundred tokens: stock it derails within the first hundred, fixed it is "
        "that of --enforce-eager."
    ),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "FLASHMLA"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Is("full CUDA graphs", ON),
    ),
)
