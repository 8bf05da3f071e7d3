"""sglang.fa3-mla-tree-pages, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"
_MODES = "sglang.srt.model_executor.forward_batch_info:ForwardMode"

FIX = Fix(
    id="sglang.fa3-mla-tree-pages",
    title="Wrong speculative text, or a crash, with draft trees and pages (MLA on fa3)",
    symptom=(
        "DeepSeek-type models with --speculative-eagle-topk and --page-size above 1 on fa3: another text than without "
        "speculation, drafts that are hardly accepted, or an illegal memory access."
    ),
    symptoms=(SPECULATION, DIES),
    cause=(
        "The backend verifies a tree in two passes, over what is cached and over the draft tokens. The table of the second "
        "lists the slot of each draft token. Latents are shown to it as pages of --page-size tokens, so slot 400 is read as "
        "page 400: keys of other requests, or memory behind the cache. Heads of their own are shown as pages of one token."
    ),
    correction=(
        "The second pass gets views of the same latents, as pages of one token. Nothing is copied. The first pass, drafts, "
        "chains, pages of one token and FlashAttention 4 are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-fa3-mla-tree-pages"),
    hardware="NVIDIA Hopper (--attention-backend fa3, its default for latent attention)",
    targets=(Target(wrap.forward_extend, needed=wrap.verifies_a_tree, paths=(f"{_BACKEND}.forward_extend",)),),
    # What plans the two passes and says which keys either has; what says whether there are two, and what they are made of
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}._mxfp8_sf_kwargs",
        f"{_BACKEND}.prepare_paged_mha_query",
        f"{_MODULE}:draft_decode_set_expand_metadata",
        f"{_MODULE}:update_draft_decode_set_expand_metadata_with_page_size",
        f"{_MODULE}:merge_state_v2_wrapper",
        f"{_MODES}.is_target_verify",
        f"{_MODES}.is_context_parallel_extend",
        "sglang.srt.layers.cp.utils:is_cp_active",
        "sglang.srt.mem_cache.layout.paged_view:paged_view",
        "sglang.srt.mem_cache.memory_pool:MLATokenToKVPool.get_key_buffer",
    ),
    remove_when="a release of sglang is served that shows slots to the second pass: attnfix then sees it and does nothing",
    cost="None in CUDA graphs. In verifications without a graph, some microseconds of the host for each layer.",
    avoid=(
        "Set `--speculative-eagle-topk 1`, or n-gram's `--speculative-ngram-max-bfs-breadth 1`: drafts are verified "
        "in one pass, without trees; fewer are accepted."
    ),
    expect=(
        "On one replica, answers at temperature 0 to short prompts, --speculative-eagle-topk 4: stock, fewer drafts are "
        "accepted with --page-size 16 than with 1, or the server dies; with the fix, as many."
    ),
    hits=AllOf(
        Is("trees of drafts", ON),
        Above("page size", 1),
        Is("attention", "MLA"),
        Is("verify backend", "fa3"),
    ),
)
