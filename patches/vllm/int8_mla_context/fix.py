"""vllm.int8-mla-context, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES
from attnfix.patches.vllm.shared.context_path import COMPUTING

from . import wrap

_MLA = "vllm.model_executor.layers.attention.mla_attention"

FIX = Fix(
    id="vllm.int8-mla-context",
    title="Crash on a prefix hit with an int8 MLA model",
    symptom=(
        "DeepSeek-type models with W8A8 of int8 (compressed-tensors `int-quantized`) answer a first request. The engine ends "
        'with the first one that shares a prefix or is prefilled in chunks. The error is `"dynamic_scaled_int8_quant_kernel" '
        "not implemented for 'Char'`."
    ),
    symptoms=(DIES, CACHED_PREFIX),
    cause=(
        "Before kv_b_proj expands the cached latent, the context loops cast it to a dtype that they ask the weight for. The "
        "function that decides it since 0.28.0 knows weights packed into int32 and uint8. For int8 it names int8, so the "
        "latent loses its fraction, and the layer gets integers where it takes floats. (Up to 0.27.1 "
        "vllm.quantized-mla-context corrects this, too.)"
    ),
    correction="A weight of integers gets inputs of the dtype that the layer was made for.",
    upstream=Upstream("vllm-project/vllm", pull=37245, report="vllm-int8-mla-context"),
    hardware="any GPU (MLA models whose kv_b_proj is kept as int8)",
    default_reason="the engine dies, but upstream has not decided yet (pull 37245 is open): on request, until it has",
    targets=(Target(wrap.input_dtype, needed=wrap.keeps_integers, paths=(f"{_MLA}:_get_kv_b_proj_input_dtype",)),),
    # The loops that ask, and what they call
    witnesses=(
        f"{_MLA}:MLACommonImpl._compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl._compute_prefill_context",
        f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl._context_parallel_compute_prefill_context",
        "vllm.model_executor.layers.linear:ColumnParallelLinear.forward",
        "vllm.model_executor.parameter:BasevLLMParameter.__torch_function__",
        "vllm.platforms.interface:Platform.fp8_dtype",
        *COMPUTING,
    ),
    remove_when="no vLLM is served that names int8 there",
    cost="A look at the weight's dtype per layer and prefill with cached context.",
    avoid=(
        "Start with `--no-enable-prefix-caching --no-enable-chunked-prefill`: the context loops are not reached; "
        "prompts are computed whole."
    ),
    expect="On one replica, send a long prompt twice: stock, the second request ends the engine; fixed, it is answered.",
    harm=CRASH,
    hits=AllOf(Is("attention", "MLA"), Is("weight of kv_b_proj", "int8"), Is("cached prefix", ON)),
)
