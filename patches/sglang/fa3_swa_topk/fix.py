"""sglang.fa3-swa-topk, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"
_KERNELS = ("sglang.srt.layers.attention.triton_ops.metadata", "sglang.kernels.ops.attention.metadata")
_PREPARE = ("prepare_swa_spec_page_table_triton", "_prepare_swa_spec_page_table_kernel")
_POOLS = ("sglang.srt.mem_cache.memory_pool:SWAKVPool", "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool")

FIX = Fix(
    id="sglang.fa3-swa-topk",
    title="Wrong text or a crash of sliding-window models with draft trees (fa3)",
    symptom=(
        "A model with sliding-window layers (gpt-oss) gives wrong text with EAGLE3 and --speculative-eagle-topk above 1 on "
        "fa3. Or the server dies of an illegal memory access."
    ),
    symptoms=(SPECULATION, DIES),
    cause=(
        "Window layers keep their KV in a smaller pool with slots of its own. To verify a tree, the backend lists for each "
        "draft token the slots of the cached tokens and of its branch, and hands window layers slots of the full pool."
    ),
    correction="The list is made from page tables that were translated to the window layers' pool.",
    upstream=Upstream("sgl-project/sglang", pull=24617, issue=24402),
    hardware="NVIDIA Hopper (--attention-backend fa3, its default for gpt-oss)",
    default=True,
    default_reason="silent wrong output or a crash; fixed upstream in the same way",
    targets=(
        Target(
            wrap.init_sliding_window_attn_spec_metadata,
            needed=wrap.has_a_window_pool,
            paths=(f"{_BACKEND}._init_sliding_window_attn_spec_metadata",),
        ),
    ),
    # What knows of the pool, lays the two page tables out, joins them and reads the result, and where the KV was written
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}._bind_metadata_buffers",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}.forward_extend",
        f"{_MODULE}:FlashAttentionMetadata",
        *(f"{module}:{name}" for module in (_MODULE, *_KERNELS) for name in _PREPARE),
        *(f"{pool}.{name}" for pool in _POOLS for name in ("set_kv_buffer", "translate_loc_from_full_to_swa")),
    ),
    examined=(">=0.5.1.post3",),
    cost="Two gathers of page tables per verification, as upstream does; nothing per layer.",
    avoid=(
        "Set `--speculative-eagle-topk 1` beside `--speculative-num-steps`: no tree, so no untranslated slots; fewer "
        "drafts are accepted."
    ),
    expect=(
        "On one replica with a draft model and --speculative-eagle-topk above 1, the text becomes that of the same model with "
        "--disable-hybrid-swa-memory, and the accept length that the engine logs (`accept len`) rises to it."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative topk", 1),
        Is("verify backend", "fa3", "fa4"),
        Is("sliding-window KV pool", ON),
    ),
)
