"""sglang.flashinfer-soft-cap, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import BACKEND
from attnfix.patches.sglang.shared import heads_of_a_rank

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_BACKEND = f"{_MODULE}:FlashInferAttnBackend"
_DECODE, _PREFILL = f"{_MODULE}:FlashInferIndicesUpdaterDecode", f"{_MODULE}:FlashInferIndicesUpdaterPrefill"

FIX = Fix(
    id="sglang.flashinfer-soft-cap",
    title="Worse answers of Gemma 2 and Grok: FlashInfer applies no soft cap",
    symptom=(
        "Gemma 2 and Grok answer worse on FlashInfer than on Triton or fa3, at any length. Most answers look right: few "
        "attention scores come near Gemma's cap of 50; Grok's of 30 is nearer."
    ),
    symptoms=(BACKEND,),
    cause=(
        "FlashInfer takes a kernel with a soft cap where the plan of a batch names one. The engine's plans name none; it names "
        "the cap at the call, where the kernel that was taken does not read it."
    ),
    correction=(
        "Every plan of prefill, decode and verification names the cap that all layers have, before a CUDA graph is captured, "
        "too. Models whose layers differ are left alone. So is prefill on SM100 that attends to new tokens by CUTLASS: it has "
        "no cap, and what is cached would be weighed by other scores."
    ),
    upstream=Upstream("sgl-project/sglang", pull=34093, issue=33915, report="sglang-flashinfer-soft-cap"),
    hardware="any GPU (--attention-backend flashinfer: the default on Ampere, Ada and consumer Blackwell)",
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H200 (0.5.13 and 0.5.23)",
    targets=(
        Target(wrap.init_updater, needed=wrap.is_own, paths=(f"{_DECODE}.__init__",)),
        Target(wrap.init_updater, needed=wrap.is_own, paths=(f"{_PREFILL}.__init__",)),
        Target(wrap.plan_decode, needed=wrap.plans_decode, paths=(f"{_DECODE}.call_begin_forward",)),
        Target(wrap.plan_prefill, needed=wrap.plans_prefill, paths=(f"{_PREFILL}.call_begin_forward",)),
    ),
    # What plans and calls the wrappers, and what a layer's cap is
    witnesses=(
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}.forward_decode",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_DECODE}.update_single_wrapper",
        f"{_DECODE}.update_sliding_window",
        f"{_PREFILL}.update_single_wrapper",
        f"{_PREFILL}.update_sliding_window",
        f"{_MODULE}:fast_decode_plan",
        f"{_MODULE}:fast_prefill_plan",
        f"{_MODULE}:MultiItemScoringParams",
        "sglang.srt.compilation.piecewise_context_manager:get_forward_context",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.fill_packed_read_stream",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.pack_read_stream",
        "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.kernels.ops.kvcache.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.kernels.ops.attention.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.radix_attention:RadixAttention.__init__",
        *heads_of_a_rank.WITNESSES,
    ),
    remove_when="no sglang with the bug serves such a model on FlashInfer",
    cost=(
        "A few microseconds per plan, and the kernel's tanh: with sglang.flashinfer-swa-prefill, 0.968 (0.951-0.985) times "
        "stock's prefill tokens/s on an H200 with 0.5.23, 1.007 (0.995-1.019) with 0.5.13, a Gemma 2 of 8 layers. A start "
        "whose FlashInfer cache is cold compiles the kernels with a soft cap in the place of those without, for 480 s at most."
    ),
    worst_cost=WorstCost(
        0.968,
        0.951,
        0.985,
        "every prompt is new and longer than the window, with sglang.flashinfer-swa-prefill",
        "h200-sglang-0.5.23",
    ),
    avoid=(
        "Set `--attention-backend fa3` on Hopper, else `triton`: both take the cap at the call. Gemma 2's decode on "
        "triton keeps sglang.triton-window-decode."
    ),
    expect=(
        "On one replica, compare log-probabilities of any prompt with those of --attention-backend triton: stock they differ, "
        "fixed they agree up to rounding. Gemma 2 with prompts longer than its window needs "
        "sglang.flashinfer-swa-prefill, too."
    ),
    look_does="its look reads what a correction stored",
    hits=AllOf(
        AnyOf(Is("prefill backend", "flashinfer"), Is("decode backend", "flashinfer")),
        Is("soft cap of scores", ON),
    ),
)
