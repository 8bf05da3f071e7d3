"""vllm.mamba-decode-order, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu.model_runner"
_STATE = "vllm.v1.worker.gpu.model_states.mamba_hybrid"
_BACKENDS = "vllm.v1.attention.backends"

FIX = Fix(
    id="vllm.mamba-decode-order",
    title="NemotronH with speculative decoding changes its text mid-answer",
    symptom=(
        "NemotronH or another Mamba2 hybrid with speculative decoding changes its text mid-answer when a short prompt starts "
        "beside it. It happens in steps without drafts: dynamic speculation, structured output, or the last token before the "
        "context limit. No error."
    ),
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    cause=(
        "Model Runner V2 sorts a batch: rows with drafts first, then those as long as a verification, then the others by "
        "length. So such a prompt stands before a decode of one token. To the layers each row behind the first prompt is a "
        "prompt, too, and begins with the state in its request's first block. Where drafts were accepted in the last step, the "
        "state of the last token is in another one."
    ),
    correction="Decodes without drafts are moved before the first prompt. All other rows keep their order.",
    upstream=Upstream("vllm-project/vllm", report="vllm-mamba-decode-order"),
    hardware="any GPU (Mamba2 layers with speculative decoding; Model Runner V2)",
    default_reason="no release corrects it, and it has not been seen with real kernels",
    targets=(
        Target(
            wrap.gather_batch_req_state,
            needed=wrap.sorts_decodes_with_prompts,
            paths=(f"{_RUNNER}:GPUModelRunner.gather_batch_req_state",),
        ),
    ),
    # Who sorts, what a row has, and who goes by the order
    witnesses=(
        f"{_RUNNER}:sort_batch_req_ids",
        f"{_RUNNER}:BatchReqState",
        f"{_RUNNER}:GPUModelRunner.prepare_inputs",
        f"{_STATE}:MambaHybridModelState.prepare_attn",
        f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        "vllm.v1.worker.utils:get_uniform_decode_token_count",
    ),
    remove_when="a release of vLLM sorts decodes before prompts: attnfix sees it",
    cost=(
        "Below 1 µs per step of a server with drafts; a few µs in a step with a prompt and a row without drafts. A row that "
        "was right, as the last step accepted nothing, is moved, too: it runs by the kernels of a decode, as all decodes do."
    ),
    avoid=(
        "Keep asynchronous scheduling (no `--no-async-scheduling`) and give `--speculative-config` no "
        "`num_speculative_tokens_per_batch_size` with a 0: decodes then have drafts."
    ),
    expect=(
        "On one replica with --no-async-scheduling, ask for long JSON by a schema at temperature 0, alone and beside prompts "
        "of one token more than there are drafts: fixed, the answers agree more often. 0.26.0 to 0.27.1 have the fault where "
        "VLLM_USE_V2_MODEL_RUNNER=1, and attnfix leaves them alone: upgrade, or serve on the V1 model runner."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Is("speculative decoding", ON),
        Is("model runner", "V2"),
        # Without either, a decode has no drafts for the last token before the limit of the context alone
        AnyOf(Is("drafts by batch size", ON), Is("async scheduling", OFF)),
    ),
    ranks_alike=True,
)
