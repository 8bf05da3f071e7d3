"""sglang.gemma3-text-bidirectional, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import BACKEND, GARBAGE

from . import wrap

_BACKEND = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend"
_POOLS = "sglang.srt.mem_cache.memory_pool"
_KERNELS = "sglang.srt.layers.attention.triton_ops", "sglang.kernels.ops.attention"
_PREFILL = "extend_attention_fwd", "extend_attention_fwd_unified", "build_unified_kv_indices"

FIX = Fix(
    id="sglang.gemma3-text-bidirectional",
    title="Gemma 3 reads text prompts without a causal mask on triton with neither chunks nor CUDA graphs",
    symptom="Answers to prompts without images differ from those of other backends: prompt tokens see later ones.",
    symptoms=(BACKEND, GARBAGE),
    cause=(
        "All layers of Gemma 3 say that a prompt's tokens may see later ones, for images' sake. Where neither chunks nor "
        "graphs stand against it, Triton believes them for text, too."
    ),
    correction=(
        "A layer of Gemma 3 is causal while it attends to a batch without a mask of images. Upstream makes it causal from "
        "0.5.17 on. Batches with images and EmbeddingGemma stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=10707),
    hardware="any GPU (Gemma 3, triton without chunks and CUDA graphs)",
    default=True,
    default_reason="silent wrong output; later releases are causal for text, too",
    targets=(Target(wrap.forward_extend, needed=wrap.sees_later_tokens, paths=(f"{_BACKEND}.forward_extend",)),),
    # The layer's own words, the backend's leave, and the kernel's reading of both
    witnesses=(
        "sglang.srt.models.gemma3_causal:Gemma3Attention.__init__",
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}._forward_extend_unified",
        "sglang.srt.model_executor.cuda_graph_config:cuda_graph_fully_disabled",
        # Functions that attention enters
        f"{_BACKEND}._can_run_dense_fp8_chunked_mha",
        f"{_BACKEND}._set_kv_buffer",
        f"{_BACKEND.partition(':')[0]}:logit_capping_mod",
        *(f"{home}.extend_attention:{name}" for home in _KERNELS for name in _PREFILL),
        *(f"{_POOLS}:MHATokenToKVPool.{name}_buffer" for name in ("get_key", "get_value", "get_kv", "set_kv")),
        f"{_POOLS}:KVWriteLoc",
        "sglang.srt.layers.cp.utils:is_cp_active",
        "sglang.srt.layers.cp.utils:is_cp_v2_active",
    ),
    cost="About two microseconds on the host for each layer of a prefill, on servers that have the bug.",
    avoid="Leave CUDA graphs on, or set a `--chunked-prefill-size` above the longest prompt.",
    expect="On one replica, answers to text at temperature 0 become those of `--chunked-prefill-size 8192`.",
    hits=AllOf(
        Is("Gemma 3 that writes text", ON),
        Is("prefill backend", "triton"),
        Is("CUDA graphs of any phase", OFF),
        Is("prompts in chunks", OFF),
    ),
)
