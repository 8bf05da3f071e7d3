"""vllm.quantized-mla-context, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES
from attnfix.patches.vllm.shared.context_path import COMPUTING

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"

FIX = Fix(
    id="vllm.quantized-mla-context",
    title="Crash on a prefix hit with a quantised MLA model",
    symptom=(
        "DeepSeek-type models with a quantised kv_b_proj answer a first request. The engine ends with the first one that "
        "shares a prefix or is prefilled in chunks. The error is `'ColumnParallelLinear' object has no attribute 'weight'` "
        "(AWQ, GPTQ, packed compressed-tensors) or `unsupported a scalar_type` (FP8 and NVFP4 served by Marlin)."
    ),
    symptoms=(DIES, CACHED_PREFIX),
    cause=(
        "Before kv_b_proj expands the cached latent, the context loops cast it to `kv_b_proj.weight.dtype`. AWQ and GPTQ "
        "layers have no such attribute: 0.18.0 asks whether they have, 0.20.0 forgets it again in the cast itself. A weight "
        "that Marlin has repacked says int32, one of NVFP4 says uint8 (left alone from 0.20.0)."
    ),
    correction=(
        "For such a layer the loop sees a kv_b_proj that calls the engine's own and names the dtype it was made for. The layer "
        "itself is not touched."
    ),
    upstream=Upstream("vllm-project/vllm", pull=38771, issue=43888),
    hardware="any GPU (MLA models whose kv_b_proj is quantised; FP8 and NVFP4 where Marlin serves them)",
    default=True,
    default_reason="the engine dies; later releases decide the same dtype",
    targets=(
        Target(
            wrap.compute_prefill_context,
            needed=wrap.takes_another_dtype,
            paths=(f"{_MLA}:MLACommonImpl._compute_prefill_context", f"{_MLA}:MLACommonBaseImpl._compute_prefill_context"),
        ),
        Target(
            wrap.compute_prefill_context,
            needed=wrap.takes_another_dtype,
            paths=(
                f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
                f"{_MLA}:MLACommonBaseImpl._context_parallel_compute_prefill_context",
            ),
        ),
    ),
    # The loop's former home, what later releases decide the dtype with, and what the loop calls
    witnesses=(
        f"{_COMMON}:MLACommonImpl._compute_prefill_context",
        f"{_MLA}:_get_kv_b_proj_input_dtype",
        f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
        "vllm.v1.attention.backends.mla.prefill.trtllm_ragged:TrtllmRaggedPrefillBackend.run_prefill_context_chunk",
        "vllm.model_executor.layers.linear:ColumnParallelLinear.forward",
        "vllm.model_executor.parameter:BasevLLMParameter.__torch_function__",
        "vllm.platforms.interface:Platform.fp8_dtype",
        "vllm.v1.attention.ops.merge_attn_states:merge_attn_states",
        *COMPUTING,
    ),
    cost=(
        "Where kv_b_proj keeps a floating-point weight, the wrapper and a look at its dtype; else a few µs of host time per "
        "layer and prefill; no launch."
    ),
    avoid=(
        "Start with `--no-enable-prefix-caching --no-enable-chunked-prefill`: the context loops are not reached; "
        "prompts are computed whole."
    ),
    expect=(
        "On one replica, send a long prompt twice: stock, the second request ends the engine; fixed, it is answered like the "
        "first. A model whose kv_b_proj is not quantised answers as before, bit for bit."
    ),
    harm=CRASH,
    hits=AllOf(Is("attention", "MLA"), Is("kv_b_proj", "packed"), Is("cached prefix", ON)),
)
