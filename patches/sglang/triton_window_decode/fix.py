"""sglang.triton-window-decode, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.signs import CACHED_PREFIX, LONG_PROMPT

from . import wrap

_MODULE = "sglang.srt.layers.attention.triton_backend"
_BACKEND = f"{_MODULE}:TritonAttnBackend"

FIX = Fix(
    id="sglang.triton-window-decode",
    title="Decode on Triton loses the oldest token of the window",
    symptom=(
        "With --attention-backend triton, Gemma, gpt-oss and other models with sliding-window layers answer a little worse "
        "once a request is longer than the window. The same text as a prompt gets other probabilities. No error."
    ),
    signs=(LONG_PROMPT, CACHED_PREFIX),
    cause=(
        "The engine keeps the window without the token itself. Prefill and verification list the tokens before the new ones, "
        "and are right. Decode lists as many with the new one among them: each step of each window layer misses the oldest."
    ),
    correction=(
        "Decode steps list one token more, and the buffer of CUDA graphs has room for it. Models that give the engine their "
        "whole window, models with windows of several sizes, and draft models are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=32087, issue=34354, report="sglang-triton-window-decode"),
    hardware="any GPU (--attention-backend triton)",
    default=False,
    default_reason="upstream has not changed it, and it has not run on a GPU yet",
    targets=(
        Target(wrap.init_backend, paths=(f"{_BACKEND}.__init__",)),
        Target(wrap.init_cuda_graph_state, needed=wrap.sizes_for_decode, paths=(f"{_BACKEND}.init_cuda_graph_state",)),
        Target(wrap.init_forward_metadata, needed=wrap.decodes, paths=(f"{_BACKEND}.init_forward_metadata",)),
        Target(
            wrap.replay,
            needed=wrap.replays_decode,
            paths=(
                f"{_BACKEND}.init_forward_metadata_out_graph",
                f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
            ),
        ),
    ),
    # What lays out decode in graphs, lists the window's slots, and attends to them
    witnesses=(
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}._init_forward_metadata_out_graph",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        f"{_BACKEND}._update_decode_kv_buffers",
        f"{_BACKEND}._build_cuda_graph_forward_metadata",
        f"{_BACKEND}._translate_cuda_graph_shared_pool_locs",
        f"{_BACKEND}._fill_kv_indptr_and_indices",
        f"{_BACKEND}.get_num_kv_splits",
        f"{_BACKEND}.forward_decode",
        f"{_MODULE}:update_sliding_window_buffer",
        f"{_MODULE}:update_sliding_window_buffer_cuda_graph",
        "sglang.srt.models.gemma2:get_attention_sliding_window_size",
        "sglang.srt.layers.radix_attention:RadixAttention.__init__",
    ),
    examined=(">=0.5.1",),
    remove_when="a release of sglang is served whose decode lists the whole window: attnfix then sees it and does nothing",
    cost=(
        "2 µs of host time per decode step, no launch. CUDA graphs: 8 bytes for each token of their largest batch, at start."
    ),
    expect=(
        "On one replica, `attnfix probe`, relation `next turn`: stock, answers move once decode has passed the window; with "
        "the fix they stay within rounding, as on other backends."
    ),
    hits=AllOf(Is("decode backend", "triton"), Is("speculative decoding", OFF), Is("window of the runner", "a token short")),
)
