"""sglang.mla-draft-lengths, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.signs import SPECULATION

from . import wrap

_ATTENTION = "sglang.srt.layers.attention"
_LISTS, _PAGES, _TRTLLM = (f"{_ATTENTION}.{name}_backend" for name in ("flashinfer_mla", "flashmla", "trtllm_mla"))
_FLASHINFER, _FLASHMLA, _TRT = (
    f"{_LISTS}:FlashInferMLAAttnBackend",
    f"{_PAGES}:FlashMLABackend",
    f"{_TRTLLM}:TRTLLMMLABackend",
)
_STEPS = f"{_LISTS}:FlashInferMLAMultiStepDraftBackend"


def _plans(backend: str) -> tuple[Target, ...]:
    """Where a step is planned: without a graph, in one from 0.5.13 on, and in one before."""
    name = f"{backend}.init_forward_metadata"
    return (
        Target(wrap.plan, needed=wrap.drafts, paths=(name,)),
        Target(wrap.plan, needed=wrap.drafts, paths=(f"{name}_out_graph",)),
        Target(wrap.plan_graph, needed=wrap.drafts, paths=(f"{name}_capture_cuda_graph",)),
        Target(wrap.plan_graph, needed=wrap.drafts, paths=(f"{name}_replay_cuda_graph",)),
    )


FIX = Fix(
    id="sglang.mla-draft-lengths",
    title="Draft steps on MLA backends do not see the newest tokens",
    symptom=(
        "DeepSeek-type models with EAGLE or MTP on flashinfer, flashmla or trtllm_mla accept fewer drafts than on fa3 or "
        "triton: the accept length that the engine logs is low. The text is right, and nothing is logged."
    ),
    signs=(SPECULATION,),
    cause=(
        "All draft steps are planned with the lengths of the cached tokens. A step should also attend to its own token and to "
        "the drafts before it. On flashinfer in CUDA graphs, the lists of slots hold these, and the plan does not count them: "
        "each request but the first begins too early in the list, in the newest tokens of the one before it."
    ),
    correction=(
        "The backend of draft step i gets lengths that are i + 1 longer, for its plan and for its kernel. The target's own "
        "backend, draft extend and idle batches are left alone, and so are decode context parallelism, cutedsl_mla and "
        "tokenspeed_mla. On flashmla and trtllm_mla a length never passes the context length, as the tables of pages need not: "
        "next to it drafts are as before."
    ),
    upstream=Upstream("sgl-project/sglang", report="sglang-mla-draft-lengths"),
    hardware=(
        "DeepSeek-type models with EAGLE or MTP: Blackwell (trtllm_mla, its default there), Hopper with --attention-backend "
        "flashmla, any GPU with --attention-backend flashinfer"
    ),
    default=False,
    default_reason="not proven on a GPU yet",
    targets=(
        Target(wrap.init_lists, paths=(f"{_STEPS}.__init__",)),
        Target(wrap.init_tables, paths=(f"{_PAGES}:FlashMLAMultiStepDraftBackend.__init__",)),
        Target(wrap.init_tables, paths=(f"{_TRTLLM}:TRTLLMMLAMultiStepDraftBackend.__init__",)),
        *_plans(_FLASHINFER),
        *_plans(_FLASHMLA),
        *_plans(_TRT),
        *(
            Target(wrap.forward_decode, needed=wrap.planned_drafts, paths=(f"{backend}.forward_decode",))
            for backend in (_FLASHMLA, _TRT)
        ),
    ),
    independent=True,  # a server loads the backend that it drafts on, and a release has one way to plan graphs
    witnesses=(),
    examined=(">=0.5.1",),
    remove_when="a release of sglang is served whose draft steps count their drafts: attnfix then sees it and does nothing",
    cost=(
        "Per draft step a copy of the batch's fields and up to three operations on its lengths; on flashmla, and on trtllm_mla "
        "up to 0.5.16, as many in the graph for each layer of the drafter."
    ),
    expect=(
        "On one replica with --speculative-num-steps above 2, compare the accept length that the engine logs (`accept len`): it "
        "rises, to what fa3 or triton has. The text keeps its distribution: every token is verified."
    ),
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        Is("attention", "MLA"),
        Is("draft decode backend", "flashinfer", "flashmla", "trtllm_mla"),
    ),
)
