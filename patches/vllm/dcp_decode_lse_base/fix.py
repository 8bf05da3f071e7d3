"""vllm.dcp-decode-lse-base, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import PARALLEL

from . import wrap

_BACKEND = "vllm.v1.attention.backends.flashinfer"

FIX = Fix(
    id="vllm.dcp-decode-lse-base",
    title="Text drifts with decode context parallelism on FlashInfer",
    symptom=(
        "With --decode-context-parallel-size above 1 and FlashInfer, generated text drifts from the text of a single rank. The "
        "less evenly attention falls on the ranks' shares, the more it drifts. No error."
    ),
    symptoms=(PARALLEL,),
    cause=(
        "Each rank attends to its share of the KV, and the shares are weighed by their log-sum-exps. FlashInfer returns those "
        "in base 2; up to 0.11.2 the combine weighs with base e."
    ),
    correction=(
        "At the first decode one row is computed again; where the kernel is seen to return base 2, its LSE is brought to base "
        "e in place, before the ranks combine."
    ),
    upstream=Upstream("vllm-project/vllm", pull=28840),
    hardware="any GPU (--decode-context-parallel-size above 1 with FlashInfer, models without MLA)",
    default=True,
    default_reason="silent wrong output; 0.12.0 combines in base 2",
    targets=(Target(wrap.forward, needed=wrap.unsettled, paths=(f"{_BACKEND}:FlashInferImpl.forward",)),),
    # What is planned, and how it is combined
    witnesses=(
        f"{_BACKEND}:FlashInferMetadataBuilder.build",
        f"{_BACKEND}:FlashInferMetadataBuilder._get_decode_wrapper",
        f"{_BACKEND}:fast_plan_decode",
        "vllm.attention.ops.common:cp_lse_ag_out_rs",
        "vllm.v1.attention.ops.common:cp_lse_ag_out_rs",
        "vllm.attention.ops.common:correct_attn_out",
        "vllm.v1.attention.ops.common:correct_attn_out",
    ),
    remove_when="no vLLM below 0.12.0 is served with decode context parallelism on FlashInfer",
    cost="Under decode context parallelism one launch over the LSE and some µs of host time per layer and step with decodes.",
    avoid=(
        "Set `VLLM_ATTENTION_BACKEND=FLASH_ATTN` on Hopper: its LSE is natural, as the combine takes it; elsewhere "
        "serve without DCP."
    ),
    expect=(
        "On one replica with --decode-context-parallel-size above 1, log-probabilities of generated text become those of the "
        "same model without it. (Prompts need vllm.lse-log-base, too.)"
    ),
    look_does="its look goes by what corrections have seen the kernel do",
    hits=AllOf(
        Is("attention", "MHA"),
        Above("decode context parallel size", 1),
        Is("attention backend", "FLASHINFER"),
    ),
)
