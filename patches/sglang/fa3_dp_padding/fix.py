"""sglang.fa3-dp-padding, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL

from . import wrap

_LAYERS = "sglang.srt.layers"
_FA3 = f"{_LAYERS}.attention.flashattention_backend:FlashAttentionBackend"
_TRITON = f"{_LAYERS}.attention.triton_backend:TritonAttnBackend"
_TRTLLM = f"{_LAYERS}.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"
_BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"
_POOLS = "sglang.srt.mem_cache.memory_pool"
_OF_TRTLLM = (
    "_forward_extend_uses_native_fp4", "_get_bmm_scales", "_get_layer_page_table", "_maybe_quantize_q",
    "_reshape_paged_kv_cache", "_should_use_fused_fp8_path",
)  # fmt: skip

FIX = Fix(
    id="sglang.fa3-dp-padding",
    title="Crash or NaN in prefill with DP attention over several tensor-parallel ranks (fa3, triton, TRT-LLM MHA)",
    symptom=(
        "A prefill ends in an index out of bounds (IndexKernel.cu), or in NaN. Its servers have DP attention with more ranks "
        "than `--dp-size`, or an all-to-all backend for experts. The error comes and goes with what memory held before."
    ),
    symptoms=(DIES, PARALLEL),
    cause=(
        "A prefill's tokens are padded to a multiple of the ranks that share them. fa3, triton and TRT-LLM MHA write no rows "
        "of padding. The output keeps there what its memory held, and experts are chosen by it. fa3 takes NaN among such keys "
        "and values into real rows."
    ),
    correction=(
        "The output's rows of padding are set to zero, and those of the LSE beside it. Upstream does so from 0.5.22 on for "
        "each backend. Launches that a graph records stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=28487, issue=18666),
    hardware="any GPU (fa3, triton or trtllm_mha, several tensor-parallel ranks for each rank of DP attention)",
    default=True,
    default_reason="a crash or NaN; upstream has released the same, and rows of requests keep their bits",
    targets=tuple(
        Target(wrap.forward_extend, needed=wrap.has_padding, paths=(f"{backend}.forward_extend",))
        for backend in (_FA3, _TRITON, _TRTLLM)
    ),
    independent=True,  # a server loads the backend that it prefills on
    # Where a batch is padded, who is told its rows, and who attends to them
    witnesses=(
        f"{_LAYERS}.radix_attention:RadixAttention.forward",
        f"{_LAYERS}.radix_attention:_attention_on_real_rows",
        f"{_LAYERS}.attention.graph_utils:_attention_on_real_rows",
        f"{_BATCH}.prepare_mlp_sync_batch",
        f"{_BATCH}._pad_inputs_to_size",
        f"{_BATCH}._pad_tensor_to_size",
        f"{_FA3}.init_forward_metadata",
        f"{_TRITON}.init_forward_metadata",
        f"{_TRTLLM}.init_forward_metadata",
        # Functions that attention enters
        f"{_FA3}._mxfp8_sf_kwargs",
        f"{_FA3}.get_paged_mha_kv_cache",
        f"{_FA3}.prepare_paged_mha_query",
        f"{_FA3.partition(':')[0]}:merge_state_v2_wrapper",
        f"{_TRITON}._can_run_dense_fp8_chunked_mha",
        f"{_TRITON}._set_kv_buffer",
        f"{_TRITON.partition(':')[0]}:logit_capping_mod",
        f"{_LAYERS}.attention.triton_ops.extend_attention:extend_attention_fwd",
        "sglang.kernels.ops.attention.extend_attention:extend_attention_fwd",
        *(f"{_TRTLLM}.{name}" for name in _OF_TRTLLM),
        f"{_LAYERS}.attention.flashinfer_backend:FlashInferAttnBackend._kv_write_scales",
        f"{_LAYERS}.attention.utils:canonicalize_stride",
        "sglang.kernels.ops.attention.utils:canonicalize_stride",
        f"{_LAYERS}.cp.utils:is_cp_active",
        f"{_LAYERS}.cp.utils:is_cp_v2_active",
        f"{_POOLS}:KVWriteLoc",
        *(f"{_POOLS}:MHATokenToKVPool.{name}_buffer" for name in ("get_key", "get_value", "get_kv", "set_kv")),
        f"{_POOLS}:MLATokenToKVPool.get_key_buffer",
        f"{_BATCH.partition(':')[0]}:ForwardMode",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_uno",
        "sglang.srt.environ:EnvField",
    ),
    cost="One small launch for each layer of a padded prefill.",
    avoid=(
        "From 0.5.3 on set `--dp-size` to the value of `--tp-size`. It does not help with pplx, with "
        "SGLANG_DEEPEP_V2_FORCE_MAX_LEN, nor with Nemotron-H while a rank is idle."
    ),
    expect=(
        "On one replica with DP attention and twice as many ranks, send prompts of odd lengths: stock ends in NaN or an index "
        "out of bounds now and then; fixed, it does not. Other answers stay."
    ),
    harm=CRASH,
    hits=AllOf(Is("prefill backend", "fa3", "triton", "trtllm_mha"), Is("padded prefills", ON)),
)
