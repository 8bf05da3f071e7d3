"""sglang.triton-draft-double-count, as data."""

from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION
from attnfix.patches.sglang.shared import draft_extend

from . import wrap

FIX = Fix(
    id="sglang.triton-draft-double-count",
    title="EAGLE accepts fewer drafts with CUDA graphs (Triton counts new tokens twice)",
    symptom=(
        "EAGLE speculative decoding (spec v2) accepts fewer draft tokens with CUDA graphs than without. The text stays right: "
        "the target model verifies it."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "In spec v2's draft extend, seq_lens counts the step's own tokens. At replay of its graph, kv_indptr is made of them, "
        "and the Triton kernel, which gets these tokens' keys and values separately, attends to them once more as if they were "
        "cached: each query also sees the tokens that follow it. Without graphs it is right."
    ),
    correction=(
        "In DRAFT_EXTEND_V2 alone, replay is shown the lengths before the step: seq_lens less the new tokens that the graph "
        "runner has counted per request. Under --enable-multi-layer-eagle the runner gives each later layer one query token "
        "more per request, which the engine does not lay out: qo_indptr of those layers is set, too."
    ),
    upstream=Upstream("sgl-project/sglang", pull=26651),
    hardware="any GPU (--attention-backend triton, EAGLE with spec v2: the default from 0.5.11)",
    default=True,
    default_reason="fixed upstream in the same way; the draft model sees the future without it",
    targets=(
        Target(
            wrap.init_forward_metadata_replay_cuda_graph,
            needed=wrap.counts_its_own_tokens,
            paths=(draft_extend.TRITON_REPLAY,),
        ),
    ),
    witnesses=(*draft_extend.TRITON, *draft_extend.PLACES),
    cost="Two small kernels per replay, before the graph: a difference of two lengths per request, and its lower bound.",
    avoid=("Set `SGLANG_ENABLE_SPEC_V2=0`: spec v1 packs its tokens and counts them once; overlap of CPU and GPU is lost."),
    expect=(
        "On one replica with spec v2, compare the accept length that the engine logs (`accept len`): it should rise towards "
        "that of the same model with --disable-cuda-graph. The text keeps its distribution: every token is verified."
    ),
    harm=SLOWER,
    hits=draft_extend.hits("triton"),
)
