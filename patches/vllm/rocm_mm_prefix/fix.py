"""vllm.rocm-mm-prefix, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import IMAGES

from . import wrap

_ROCM, _V1 = "vllm.platforms.rocm", "vllm.v1.attention"
_BACKENDS = f"{_V1}.backends"

FIX = Fix(
    id="vllm.rocm-mm-prefix",
    title="Images of Gemma 3 are misread on AMD's default backend",
    symptom=(
        "On AMD, answers about images are worse than on NVIDIA: tokens of an image do not see those behind them. It hits "
        "Gemma 3, PaliGemma, Molmo 2 and other models with such attention. Answers to text are not touched. No error."
    ),
    symptoms=(IMAGES,),
    cause=(
        "ROCM_ATTN and ROCM_AITER_UNIFIED_ATTN say that they attend to images both ways, and read no ranges of images. The "
        "platform tries them before TRITON_ATTN, which does. Up to 0.18.1 it tries them only if an option or a variable asks."
    ),
    correction=(
        "For such a model AMD's platform tries TRITON_ATTN first, as 0.32.0 in effect does. If that backend does not serve a "
        "layer, the choice stays. Servers stay as they are with `--attention-backend`, a KV connector, speculative decoding or "
        "an FP8 KV cache. Up to 0.29.0 an image in two chunks of a prompt is still read in parts: set "
        "`--disable-chunked-mm-input`. Images stay as they are on AMD before 0.18.0 with `VLLM_ROCM_USE_AITER=1`, on Intel "
        "GPUs up to 0.24.0 (set `--attention-backend TRITON_ATTN`) and on CPUs."
    ),
    upstream=Upstream("vllm-project/vllm", pull=46754),
    hardware="AMD GPUs (ROCM_ATTN, ROCM_AITER_UNIFIED_ATTN); not seen on one",
    default_reason="not seen on an AMD GPU, and requests without images get another kernel, whose speed there nobody measured",
    targets=(
        Target(
            wrap.get_backend_priorities,
            needed=wrap.attends_both_ways,
            paths=(f"{_ROCM}:_get_backend_priorities",),
        ),
    ),
    # How the platform chooses, what the backends say, and what they hand to their kernels
    witnesses=(
        f"{_ROCM}:RocmPlatform.get_attn_backend_cls",
        f"{_ROCM}:RocmPlatform.get_valid_backends",
        f"{_V1}.selector:get_attn_backend",
        f"{_V1}.backend:AttentionBackend.validate_configuration",
        f"{_BACKENDS}.rocm_attn:RocmAttentionBackend.supports_mm_prefix",
        f"{_BACKENDS}.rocm_attn:RocmAttentionImpl.forward",
        f"{_BACKENDS}.rocm_aiter_unified_attn:RocmAiterUnifiedAttentionBackend.supports_mm_prefix",
        f"{_BACKENDS}.rocm_aiter_unified_attn:RocmAiterUnifiedAttentionImpl.forward",
        f"{_BACKENDS}.triton_attn:TritonAttentionBackend.supports_mm_prefix",
        f"{_BACKENDS}.triton_attn:TritonAttentionImpl.forward",
        "vllm._aiter_ops:if_aiter_supported",
        "vllm._aiter_ops:rocm_aiter_ops.is_rdna_aiter_enabled",
        "vllm.config.vllm:get_current_vllm_config_or_none",
        "vllm.envs:__getattr__",
    ),
    ranks_alike=True,
    cost=(
        "Some microseconds for each layer at start. All requests of such a model run TRITON_ATTN, also those without images. "
        "Its speed was not measured on AMD."
    ),
    avoid="`--attention-backend TRITON_ATTN`, which reads the images' ranges; or take release 0.32.0.",
    expect=(
        "The log of one replica says that it uses TRITON_ATTN. Answers about images become those of a server on NVIDIA, and "
        "answers to text keep their meaning: rounding may change words. Compare tokens/s with those of a replica without it."
    ),
    stays_out=AnyOf(
        Is("named attention backend", ON),
        Is("KV connector", ON),
        Is("speculative decoding", ON),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
    ),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("images seen both ways", ON),
        Is("backend on AMD", "ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN"),
    ),
)
