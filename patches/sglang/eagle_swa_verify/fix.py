"""sglang.eagle-swa-verify, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import LONG_PROMPT, SPECULATION
from attnfix.patches.sglang.shared import heads_of_a_rank
from attnfix.patches.sglang.shared.window_layers import plans_for_windows

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_BACKEND, _UPDATER = f"{_MODULE}:FlashInferAttnBackend", f"{_MODULE}:FlashInferIndicesUpdaterPrefill"
_INPUTS = ("sglang.srt.speculative.eagle_info:EagleVerifyInput", "sglang.srt.speculative.ngram_info:NgramVerifyInput",
           "sglang.srt.speculative.eagle_info:EagleDraftExtendInput")  # fmt: skip

FIX = Fix(
    id="sglang.eagle-swa-verify",
    title="Worse speculative text beyond the window (FlashInfer)",
    symptom=(
        "Gemma and other models with sliding-window layers write worse text on FlashInfer once a request is longer than the "
        "window. Or they accept few drafts. It happens with EAGLE, MTP, a draft model or n-gram speculation. No error."
    ),
    symptoms=(SPECULATION, LONG_PROMPT),
    cause=(
        "For window layers the verification's plan counts as many cached tokens as the window has, and lists the text's first "
        "ones. The mask is that of the whole text, so its rows do not fit either, also for the requests behind. What is in "
        "the plan is not kept to the window. Up to 0.5.13.post1 such a server dies of a TypeError instead."
    ),
    correction=(
        "Beyond the window, window layers are planned over the whole text, as full layers are, with their window, which "
        "FlashInfer adds to the mask. In trees the window follows the way to the root. The draft model's window layers get the "
        "same where it takes over what was verified. DFlash, and models with windows of several sizes, are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=39287, issue=22679),
    hardware="any GPU (--attention-backend flashinfer)",
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H200 (0.5.23)",
    targets=(
        Target(wrap.init_updater, needed=plans_for_windows, paths=(f"{_UPDATER}.__init__",)),
        Target(wrap.update_sliding_window, needed=wrap.misplans, paths=(f"{_UPDATER}.update_sliding_window",), repeatable=True),
    ),
    # What plans, lists KV and masks, what makes the wrappers of graphs and their buffers, and what calls them
    witnesses=(
        f"{_UPDATER}.call_begin_forward",
        f"{_UPDATER}._build_swa_prefix_custom_mask",
        *(f"{one}.generate_attn_arg_prefill" for one in _INPUTS),
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}._create_prefill_wrappers",
        f"{_BACKEND}._prepare_cuda_graph_metadata",
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}._get_wrapper_idx",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.index_table_for_batch",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.fill_packed_read_stream",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.pack_read_stream",
        "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.kernels.ops.kvcache.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.kernels.ops.attention.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.radix_attention:RadixAttention.__init__",
        *heads_of_a_rank.WITNESSES,
    ),
    remove_when="no sglang with the bug serves such a model on FlashInfer with speculation",
    cost=(
        "Up to the window, a look at lengths that the host has: 0.980 (0.949-1.012) times stock's tokens/s and the same "
        "tokens, a Gemma 2 of 8 layers on one H200, 200 pairs. Beyond it, 0.916 (0.880-0.954): the plan of window layers lists "
        "all slots, and trees take a copy of the mask and ten small launches per verification. A start whose FlashInfer cache "
        "is cold compiles the kernel with a window, for 480 s at most."
    ),
    worst_cost=WorstCost(
        0.863, 0.829, 0.899, "every request is longer than the window and has n-gram drafts", "h100-sglang-0.5.23"
    ),
    avoid=(
        "Set `--attention-backend fa3` on Hopper, else `triton` with `--speculative-eagle-topk 1`: both window what "
        "they verify; speed differs."
    ),
    expect=(
        "On one replica, greedy answers to prompts longer than the window: stock they differ from those without speculation, "
        "with the fix they agree up to rounding, and the accept length that the engine logs (`accept len`) rises."
    ),
    look_does="its look reads what a correction stored",
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "FROZEN_KV_MTP"),
        AnyOf(Is("verify backend", "flashinfer"), Is("draft extend backend", "flashinfer")),
        Is("sliding-window layers", ON),
    ),
)
