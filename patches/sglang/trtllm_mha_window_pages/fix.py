"""sglang.trtllm-mha-window-pages, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import BACKEND, GARBAGE

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"
_POOL = "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool"

FIX = Fix(
    id="sglang.trtllm-mha-window-pages",
    title="Garbage from models with a KV pool of their own for window layers (TRT-LLM MHA)",
    symptom=(
        "Llama 4 answers with garbage on Blackwell, where TRT-LLM MHA is the default. With an FP8 KV cache the server may die "
        "of an illegal memory access; in 0.5.9 such a cache alone is wrong."
    ),
    symptoms=(GARBAGE, BACKEND),
    cause=(
        "Window layers keep their KV in a smaller pool with slots of its own. The kernel gets pages of the full pool for all "
        "layers. Up to 0.5.9, keys and values of an FP8 cache are written to slots of the full pool, too."
    ),
    correction=(
        "Window layers get a page table, and FP8 caches slots, that are translated to their pool, as in 0.5.10. Beyond "
        "`attention_chunk_size` Llama 4 stays wrong, as there: its window layers read freed pages."
    ),
    upstream=Upstream("sgl-project/sglang", pull=18970, issue=17429),
    hardware="Blackwell (trtllm_mha, the default for Llama 4)",
    default=True,
    default_reason="silent wrong output; later releases translate the same tables and slots",
    targets=(
        Target(wrap.forward, needed=wrap.reads_window_pool, paths=(f"{_BACKEND}.forward_decode",)),
        Target(wrap.forward, needed=wrap.reads_window_pool, paths=(f"{_BACKEND}.forward_extend",)),
        Target(
            wrap.fused_fp8_set_kv_buffer,
            needed=wrap.writes_window_pool,
            paths=(f"{_BACKEND}._fused_fp8_set_kv_buffer",),
        ),
    ),
    # Layout and translation of page tables, and the pool's writes
    witnesses=(
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}._get_layer_page_table",
        f"{_BACKEND}._get_layer_cache_loc",
        f"{_POOL}.__init__",
        f"{_POOL}.set_kv_buffer",
        f"{_POOL}.translate_loc_from_full_to_swa",
        f"{_POOL}.get_kv_buffer",
        f"{_BACKEND}._should_use_fused_fp8_path",
        "sglang.srt.layers.attention.triton_ops.trtllm_fp8_kv_kernel:",
        "sglang.srt.layers.attention.utils:canonicalize_stride",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool.get_kv_buffer",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool.set_kv_buffer",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode",
    ),
    cost=(
        "One translation of the page table for each forward; in graphs, of the whole buffer: captured requests by pages of the "
        "context length. A second table lies in the graphs' memory, 34 MB for 512 requests of a million tokens. Upstream "
        "translates outside of graphs. An FP8 cache adds one translation of the new tokens' slots for each window layer."
    ),
    avoid="Set `--disable-hybrid-swa-memory`: all layers share one pool, which holds fewer tokens.",
    expect=(
        "On one replica with Llama 4, at temperature 0: answers within `attention_chunk_size` (8,192 tokens) become those of "
        "`--disable-hybrid-swa-memory`. Longer ones stay wrong: TRT-LLM MHA has no chunked attention. Models whose layers "
        "share one pool stay the same."
    ),
    hits=AllOf(
        AnyOf(Is("prefill backend", "trtllm_mha"), Is("decode backend", "trtllm_mha")),
        Is("sliding-window KV pool", ON),
        Is("slots of the other pool", ON),
    ),
)
