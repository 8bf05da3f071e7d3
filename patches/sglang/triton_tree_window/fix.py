"""sglang.triton-tree-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.triton_backend"
_BACKEND = f"{_MODULE}:TritonAttnBackend"
_KERNELS = "sglang.srt.layers.attention.triton_ops.extend_attention", "sglang.kernels.ops.attention.extend_attention"
_POOLS = "memory_pool:MHATokenToKVPool", "memory_pool:SWAKVPool", "swa_memory_pool:SWAKVPool"
_GRAPHS = (
    "init_forward_metadata_capture_cuda_graph", "init_forward_metadata_replay_cuda_graph", "_init_forward_metadata_out_graph",
    "_apply_cuda_graph_metadata", "_update_target_verify_buffers", "_build_cuda_graph_forward_metadata",
    "_target_verify_num_tokens_per_req",
)  # fmt: skip

FIX = Fix(
    id="sglang.triton-tree-window",
    title="Sliding-window models change their text with draft trees (Triton)",
    symptom=(
        "Gemma 3, gpt-oss and other models with sliding-window layers give another text with speculation than without, on "
        "--attention-backend triton. It happens with --speculative-eagle-topk above 1 and with n-gram speculation. Nothing is "
        "logged."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "The kernel has the window of a draft token begin by the number of its row. In a tree several rows stand at one "
        "position: row i at depth d misses the oldest i - d tokens of its window."
    ),
    correction=(
        "Launches over a tree get a mask that has the window by depths, over the drafts and what is cached, and a window that "
        "no row leaves. Chains, layers without a window, and deterministic inference, which has its own kernel, are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-triton-tree-window"),
    hardware="any GPU (--attention-backend triton)",
    targets=(Target(wrap.forward_extend, needed=wrap.verifies_a_tree, paths=(f"{_BACKEND}.forward_extend",)),),
    # What lays out a verification, lists the window's tokens, and attends; what says whether there is one
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
        *(f"{_BACKEND}.{name}" for name in _GRAPHS),
        f"{_BACKEND}._forward_extend_kernel",
        f"{_BACKEND}._can_run_dense_fp8_chunked_mha",
        f"{_MODULE}:ForwardMetadata",
        f"{_MODULE}:update_sliding_window_buffer",
        f"{_MODULE}:update_sliding_window_buffer_cuda_graph",
        f"{_MODULE}:logit_capping_mod",
        *(f"{module}:{name}" for module in _KERNELS for name in ("extend_attention_fwd", "_fwd_kernel")),
        f"{_BACKEND}._set_kv_buffer",
        *(f"sglang.srt.mem_cache.{pool}.{part}_buffer" for pool in _POOLS for part in ("get_key", "get_value", "set_kv")),
        "sglang.srt.mem_cache.memory_pool:KVWriteLoc",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
    ),
    remove_when="a release of sglang is served whose kernel goes by positions: attnfix then sees it and does nothing",
    cost=(
        "Per verification and layer with a window about a dozen small launches, in CUDA graphs, too, and a byte for each draft "
        "of a request and each token that it may see."
    ),
    avoid=(
        "Set `--speculative-eagle-topk 1`, or n-gram's `--speculative-ngram-max-bfs-breadth 1`: rows are positions, "
        "so windows begin rightly; fewer drafts are accepted."
    ),
    expect=(
        "On one replica, answers at temperature 0, longer than the window: stock, log-probabilities with "
        "--speculative-eagle-topk 4 differ from those with 1 by more than rounding; with the fix they do not."
    ),
    hits=AllOf(
        Is("trees of drafts", ON),
        Is("window of the runner", "a token short"),
        Is("verify backend", "triton"),
        Is("deterministic inference", OFF),
    ),
)
