"""sglang.mamba-float16-conv, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata"
_POOL = "sglang.srt.mem_cache.memory_pool"

FIX = Fix(
    id="sglang.mamba-float16-conv",
    title="Crash at the first long prompt of a Mamba2 model in float16",
    symptom=(
        "With --dtype float16, NemotronH or a Granite hybrid serves short prompts. The first prompt with a whole chunk of "
        "tokens ends the server. The error is `Index put requires the source and destination dtypes match, got BFloat16 for "
        "the destination and Half for the source`."
    ),
    symptoms=(DIES,),
    cause=(
        "The states of the convolution are bfloat16, whatever the model's dtype is. Its kernels convert what they store there. "
        "The last tokens of a chunk, which are kept for the radix cache, are copied by an assignment that does not."
    ),
    correction="What is assigned is converted to the dtype of the states, as the kernels convert it.",
    upstream=Upstream("sgl-project/sglang", report="sglang-mamba-float16-conv"),
    hardware="any GPU (hybrid models with Mamba2 layers in another dtype than SGLANG_MAMBA_CONV_DTYPE says, radix cache)",
    default_reason="not fixed upstream, and not proven on a GPU yet; SGLANG_MAMBA_CONV_DTYPE=float16 avoids the bug",
    targets=(
        Target(
            wrap.forward,
            needed=wrap.saves_in_another_dtype,
            paths=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",),
        ),
    ),
    # What says which dtype the states have, who hands them over, and who says which tokens are copied
    witnesses=(
        "sglang.srt.configs.mamba_utils:mamba2_state_dtype",
        "sglang.srt.configs.nemotron_h:NemotronHConfig.mamba2_cache_params",
        f"{_POOL}:MambaPool.__init__",
        f"{_POOL}:MambaPool.State.at_layer_idx",
        f"{_POOL}:HybridReqToTokenPool.mamba2_layer_cache",
        f"{_LINEAR}:Mamba2AttnBackend.forward",
        f"{_LINEAR}:Mamba2AttnBackend.init_forward_metadata",
        f"{_LINEAR}:MambaAttnBackendBase._forward_metadata",
        f"{_LINEAR}:MambaAttnBackendBase._init_track_conv_indices",
        f"{_METADATA}.prepare_mixed",
    ),
    remove_when="a release of sglang converts them or gives the states the model's dtype",
    cost="A comparison of dtypes per Mamba2 layer and step. Where it corrects: a conversion of a few tokens per layer.",
    avoid=(
        "Set `SGLANG_MAMBA_CONV_DTYPE=float16` beside `--dtype float16`: states get the model's dtype; range of "
        "float16. Or serve with `--dtype bfloat16`."
    ),
    expect=(
        "On one replica with --dtype float16, send a prompt of 300 tokens: stock, the server ends; with the fix it answers. "
        "Falcon-H1's and Gated DeltaNet's CUDA kernels refuse such states themselves, by reading, and are not corrected: set "
        "SGLANG_MAMBA_CONV_DTYPE=float16 there."
    ),
    harm=CRASH,
    hits=AllOf(Is("Mamba2 layers", ON), Is("tracked Mamba states", ON), Is("convolution states of another dtype", ON)),
)
