"""sglang.fa3-tree-sinks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"
_MODES = "sglang.srt.model_executor.forward_batch_info:ForwardMode"

FIX = Fix(
    id="sglang.fa3-tree-sinks",
    title="gpt-oss changes its text with draft trees (fa3)",
    symptom=(
        "gpt-oss with --speculative-eagle-topk above 1, or with n-gram speculation, on fa3 gives another text than without "
        "speculation. Nothing is logged."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "The backend attends to a tree in two passes, over what is cached and over the draft tokens, and merges both by their "
        "LSEs. Either pass gets the model's attention sinks, and an LSE of FlashAttention holds them: the merged row has every "
        "sink twice, as if it were larger by ln 2. It concerns layers with sinks and without a window, and drafters with sinks."
    ),
    correction=(
        "The pass over what is cached gets no sinks. The pass over the draft tokens keeps them: each row sees its own key "
        "there, while the other may have none. Layers that are verified in one pass, chains and prefills are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-fa3-tree-sinks"),
    hardware="NVIDIA Hopper (--attention-backend fa3, its default for gpt-oss)",
    targets=(
        Target(wrap.forward, needed=wrap.verifies_a_tree, paths=(f"{_BACKEND}.forward_extend",)),
        Target(wrap.forward, needed=wrap.drafts_a_tree, paths=(f"{_BACKEND}.forward_decode",)),
    ),
    # What plans the two passes and says which keys either has; what says whether there are two, and what they are made of
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}._mxfp8_sf_kwargs",
        f"{_BACKEND}.get_paged_mha_kv_cache",
        f"{_BACKEND}.prepare_paged_mha_query",
        f"{_MODULE}:draft_decode_set_expand_metadata",
        f"{_MODULE}:update_draft_decode_set_expand_metadata_with_page_size",
        f"{_MODULE}:merge_state_v2_wrapper",
        f"{_MODES}.is_target_verify",
        f"{_MODES}.is_context_parallel_extend",
        "sglang.srt.layers.cp.utils:is_cp_active",
        "sglang.srt.mem_cache.layout.paged_view:paged_view",
        "sglang.srt.mem_cache.memory_pool:KVWriteLoc",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool.get_kv_buffer",
        "sglang.srt.mem_cache.memory_pool:MHATokenToKVPool.set_kv_buffer",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_uno",
    ),
    remove_when="a release of sglang is served that counts them once: attnfix then sees it and does nothing",
    cost=(
        "None in CUDA graphs. In steps without a graph, some microseconds of the host for each layer with sinks that attends "
        "to a tree. The GPU reads the sinks in one launch instead of two."
    ),
    avoid=(
        "Set `--speculative-eagle-topk 1`, or n-gram's `--speculative-ngram-max-bfs-breadth 1`: one pass counts sinks "
        "once; fewer drafts are accepted."
    ),
    expect=(
        "On one replica, answers at temperature 0 to short prompts: stock, log-probabilities with --speculative-eagle-topk 4 "
        "differ from those with 1 by more than rounding; with the fix they do not."
    ),
    hits=AllOf(
        Is("trees of drafts", ON),
        Is("attention sinks", ON),
        Is("verify backend", "fa3", "fa4"),
    ),
)
