"""vllm.flashinfer-q-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

from . import wrap

_QUANTIZATION = "vllm.model_executor.layers.quantization"
_ATTENTION = "vllm.model_executor.layers.attention.attention"
_FLASHINFER = "vllm.v1.attention.backends.flashinfer"

FIX = Fix(
    id="vllm.flashinfer-q-scale",
    title="Garbage from checkpoints with a query scale (FLASHINFER)",
    symptom=(
        "A checkpoint with a scale of queries, or --calculate-kv-scales, answers badly or with garbage on FLASHINFER wherever "
        "queries keep the model's dtype. They keep it on GPUs without FP8 queries (A100, L40S, RTX 4090). On all GPUs they "
        "keep it with --attention-config.disable_flashinfer_q_quantization. TRITON_ATTN answers right. No error."
    ),
    symptoms=(KV_SCALES, GARBAGE),
    cause=(
        "The query's scale goes to FlashInfer's wrappers whatever dtype the query has. They multiply all scores by it, to undo "
        "a quantisation that did not happen."
    ),
    correction="A wrapper that gets a query of more than one byte per value is told a scale of 1; other queries keep theirs.",
    upstream=Upstream("vllm-project/vllm", report="vllm-flashinfer-q-scale"),
    hardware="NVIDIA GPUs (FLASHINFER), with checkpoints that bring a scale of queries",
    default=True,
    default_reason="silent wrong output; an H100 served with and without it, with FlashInfer's own kernels",
    targets=(Target(wrap.forward, needed=wrap.native, paths=(f"{_FLASHINFER}:FlashInferImpl.forward",)),),
    # Which queries are FP8, which kernel gets them, and what the query's number is
    witnesses=(
        f"{_FLASHINFER}:FlashInferImpl.maybe_quant_query",
        f"{_FLASHINFER}:FlashInferImpl.__init__",
        f"{_FLASHINFER}:FlashInferMetadataBuilder.__init__",
        f"{_FLASHINFER}:FlashInferMetadataBuilder.get_q_data_type",
        f"{_FLASHINFER}:FlashInferMetadataBuilder.build",
        f"{_FLASHINFER}:FIPrefill",
        f"{_FLASHINFER}:FIDecode",
        f"{_FLASHINFER}:BatchDCPPrefillWrapper.run",
        "vllm.attention.layer:Attention.__init__",
        f"{_ATTENTION}:Attention.__init__",
        f"{_ATTENTION}:Attention.forward",
        f"{_ATTENTION}:set_default_quant_scales",
        f"{_QUANTIZATION}.kv_cache:BaseKVCacheMethod.process_weights_after_loading",
        f"{_QUANTIZATION}.compressed_tensors.compressed_tensors:CompressedTensorsKVCacheMethod.process_weights_after_loading",
    ),
    remove_when="a release of vLLM is served that tells the wrappers 1: attnfix then sees it and does nothing",
    cost="Some µs of host time per layer and step of a model with such a scale; of all others, one comparison.",
    avoid="Start with `--attention-backend TRITON_ATTN`: it applies the query's scale to FP8 queries alone.",
    expect=(
        "On one replica with --attention-backend FLASHINFER, answers at temperature 0 become close to those of the same "
        "checkpoint with TRITON_ATTN. A checkpoint without a scale of queries answers as before, bit for bit."
    ),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("scales of queries", "of a checkpoint", "computed"),
        Is("queries of FlashInfer", "the model's"),
        Is("kernels of the attention backend", "FlashInfer"),
    ),
)
