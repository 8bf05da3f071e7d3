"""sglang.kv-scales-file, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE, KV_SCALES

from . import wrap

_SRT = "sglang.srt"
_ATTENTION = f"{_SRT}.layers.attention"
_FA3 = f"{_ATTENTION}.flashattention_backend:FlashAttentionBackend"
_FLASHINFER = f"{_ATTENTION}.flashinfer_backend:FlashInferAttnBackend"
_TRITON = f"{_ATTENTION}.triton_backend:TritonAttnBackend"
_TRTLLM = f"{_ATTENTION}.trtllm_mha_backend:TRTLLMHAAttnBackend"
_FUSED = "sglang.jit_kernel.fused_fp8_qkv_kv_cache", "sglang.kernels.ops.kvcache.fused_fp8_qkv_kv_cache"

FIX = Fix(
    id="sglang.kv-scales-file",
    title="Crash, or garbage on FlashInfer, with a file of KV scales",
    symptom=(
        "With --quantization-param-path and --kv-cache-dtype fp8_e4m3 the server ends. On fa3 and trtllm_mha it ends at the "
        "first prompt ('float' object has no attribute 'expand', or 'to'). On triton it ends at the first decode step ('float' "
        "and 'NoneType'). On flashinfer answers are wrong from the second token on, without an error."
    ),
    symptoms=(KV_SCALES, DIES, GARBAGE),
    cause=(
        "A file's scales are set as numbers in k_scale and v_scale, and k_scale_float and v_scale_float stay None. fa3 and "
        "trtllm_mha want tensors in the former. flashinfer and triton divide by the former when they write, and multiply by "
        "the latter when they read."
    ),
    correction=(
        "When a model's attention backends are made, its layers get what a checkpoint's scales would have left: the numbers, "
        "and for fa3 and trtllm_mha tensors. Other backends are left alone. So are these beside one that leaves scales out, "
        "such as torch_native, and FlashAttention 4."
    ),
    upstream=Upstream("sgl-project/sglang", issue=18818, report="sglang-kv-scales-file"),
    hardware="NVIDIA GPUs: fa3; flashinfer from 0.5.2, triton from 0.5.10 and trtllm_mha from 0.5.16 on",
    # TRT-LLM's backend is made by that of FlashInfer, which it derives from
    targets=tuple(
        Target(wrap.construct, needed=wrap.lacks, paths=(f"{backend}.__init__",)) for backend in (_FA3, _FLASHINFER, _TRITON)
    ),
    # What loads a file; what writes and reads by which scales; who says which backends a model has
    witnesses=(
        f"{_SRT}.models.llama:LlamaModel.load_kv_cache_scales",
        f"{_SRT}.model_loader.weight_utils:kv_cache_scales_loader",
        f"{_SRT}.model_executor.model_runner_components.load_model_utils:load_kv_cache_scales",
        f"{_SRT}.layers.radix_attention:RadixAttention.__init__",
        *(
            f"{backend}.{name}"
            for backend in (_FA3, _FLASHINFER, _TRITON, _TRTLLM)
            for name in ("forward_extend", "forward_decode")
        ),
        f"{_FA3}.prepare_paged_mha_query",
        f"{_FLASHINFER}._kv_write_scales",
        f"{_TRITON}._set_kv_buffer",
        f"{_TRTLLM}.__init__",
        f"{_TRTLLM}._get_bmm_scales",
        f"{_TRTLLM}._get_scalar_scale",
        f"{_TRTLLM}._fused_fp8_qkv_kv_cache",
        *(f"{module}:_scale_to_f32" for module in _FUSED),
        f"{_SRT}.mem_cache.memory_pool:MHATokenToKVPool.set_kv_buffer",
        f"{_SRT}.server_args:ServerArgs.get_attention_backends",
    ),
    remove_when="a release of sglang is served that sets both: attnfix then sees it and does nothing",
    cost="A look at the model's layers for each backend that is made; nothing while it serves.",
    avoid=(
        "Drop `--quantization-param-path`: scales are 1 and servers start; FP8 KV loses the file's calibration. No "
        "backend listed reads such a file rightly."
    ),
    expect=(
        "On one replica with such a file, at temperature 0: fa3, trtllm_mha and triton serve, and answers of flashinfer become "
        "close to those without the file."
    ),
    independent=True,
    hits=AllOf(
        Is("KV scales from a file", ON),
        Is("backends that want more than a file leaves", ON),
    ),
)
