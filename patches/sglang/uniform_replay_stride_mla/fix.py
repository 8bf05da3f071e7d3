"""sglang.uniform-replay-stride-mla, as data."""

from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION
from attnfix.patches.sglang.shared import draft_extend, uniform_replay

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

FIX = Fix(
    id="sglang.uniform-replay-stride-mla",
    title="EAGLE accepts fewer drafts with CUDA graphs (TRT-LLM MLA)",
    symptom=(
        "EAGLE speculative decoding (spec v2) of DeepSeek-type models accepts fewer draft tokens with CUDA graphs than "
        "without. The text stays right: the target model verifies it."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "The draft-extend graph of spec v2 holds speculative_num_draft_tokens query tokens of every request, accepted or not. "
        "At replay the metadata is made from the accept lengths instead: seq_lens_k comes out short by the accept length, so "
        "that every query row misses its newest keys. Spec v1 packs its tokens, and no stride is right for those: upstream's, "
        "applied to v1 as well, helps only batches in which every token was accepted."
    ),
    correction=(
        "In DRAFT_EXTEND_V2 alone, replay is shown equal lengths, and so lays out exactly what capture did: cu_seqlens_q, "
        "max_seq_len_q, sum_seq_lens_q and seq_lens_q by the stride, seq_lens_k the real lengths, pages for all of them."
    ),
    upstream=Upstream("sgl-project/sglang", pull=21987),
    hardware="Blackwell (--attention-backend trtllm_mla, EAGLE with SGLANG_ENABLE_SPEC_V2=1)",
    default=True,
    default_reason="fixed upstream in the same way; the draft model attends to the wrong keys without it",
    targets=(
        Target(
            wrap.init_forward_metadata_replay_cuda_graph,
            needed=uniform_replay.is_draft_extend,
            paths=(f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",),
        ),
    ),
    # What sets the stride, captures, calls and reads the metadata, and what later releases replay with
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}._init_cuda_graph_metadata",
        f"{_BACKEND}._apply_cuda_graph_metadata",
        "sglang.srt.layers.attention.utils:create_flashmla_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashmla_kv_indices_triton",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_decode_or_idle",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
        *draft_extend.PLACES,
    ),
    cost="2 µs of host time per replay (measured); no launch, and no allocation after the first replay.",
    avoid=(
        "Start with `--disable-cuda-graph`: eager draft extends count all keys; decode slows. Spec v1 "
        "(`SGLANG_ENABLE_SPEC_V2` unset) is no way; 0.5.10 is mended."
    ),
    expect=(
        "On one replica with spec v2, compare the accept length that the engine logs (`accept len`): it should rise towards "
        "that of the same model with --disable-cuda-graph. The text keeps its distribution: every token is verified."
    ),
    harm=SLOWER,
    hits=draft_extend.hits("trtllm_mla"),
)
