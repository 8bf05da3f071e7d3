"""sglang.uniform-replay-stride-triton, as data."""

from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SPECULATION
from attnfix.patches.sglang.shared import draft_extend, uniform_replay

from . import wrap

FIX = Fix(
    id="sglang.uniform-replay-stride-triton",
    title="EAGLE accepts fewer drafts with CUDA graphs (Triton)",
    symptom=(
        "EAGLE speculative decoding (spec v2) accepts fewer draft tokens with CUDA graphs than without, and may end in NaN of "
        "the draft model. The text stays right: the target model verifies it."
    ),
    symptoms=(SPECULATION,),
    cause=(
        "The draft-extend graph of spec v2 holds speculative_num_steps + 1 query tokens of every request, accepted or not. At "
        "replay qo_indptr is made from the accept lengths instead: a request's rows are answered for another, and those "
        "at the end are never written. In spec v1 the tokens are packed by accept length and the engine is right."
    ),
    correction=(
        "In DRAFT_EXTEND_V2 alone, replay is shown equal lengths, as many as the graph's runner says, so that qo_indptr is the "
        "layout of its input: of the later layers under --enable-multi-layer-eagle, too. That kv_indptr counts the step's own "
        "tokens twice up to 0.5.12.post1 is another fault: sglang.triton-draft-double-count."
    ),
    upstream=Upstream("sgl-project/sglang", pull=19807, issue=19717),
    hardware="any GPU (--attention-backend triton, EAGLE with SGLANG_ENABLE_SPEC_V2=1)",
    default=True,
    default_reason="fixed upstream in the same way; the draft model answers for the wrong requests without it",
    targets=(
        Target(
            wrap.init_forward_metadata_replay_cuda_graph,
            needed=uniform_replay.is_draft_extend,
            paths=(draft_extend.TRITON_REPLAY,),
        ),
    ),
    witnesses=(*draft_extend.TRITON, *draft_extend.PLACES),
    cost="2 µs of host time per replay (measured); no launch, and no allocation after the first replay.",
    avoid=(
        "Leave `SGLANG_ENABLE_SPEC_V2` unset: spec v1, the default, packs its tokens rightly; overlap with speculation is lost."
    ),
    expect=(
        "On one replica with spec v2, compare the accept length that the engine logs (`accept len`): it should rise towards "
        "that of the same model with --disable-cuda-graph. The text keeps its distribution: every token is verified."
    ),
    harm=SLOWER,
    hits=draft_extend.hits("triton"),
)
