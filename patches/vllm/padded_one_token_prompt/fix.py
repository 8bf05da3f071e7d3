"""vllm.padded-one-token-prompt, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

from . import wrap

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_BACKENDS = "vllm.v1.attention.backends"

FIX = Fix(
    id="vllm.padded-one-token-prompt",
    title="Wrong answers to prompts of one token (hybrid models with drafts)",
    symptom=(
        "A hybrid model with speculative decoding (Qwen3-Next, Qwen3.5 or NemotronH with MTP) answers a prompt of one token "
        "wrongly while other requests decode. With Gated DeltaNet the answer may go on with the text of another request. No "
        "error. Chat templates make longer prompts: it is seen with /v1/completions."
    ),
    symptoms=(SHARED_BATCH, GARBAGE),
    cause=(
        "The scheduler pads such a prompt with as many placeholders as there are drafts, so that the batch is uniform. Gated "
        "DeltaNet then takes it for a verification, which begins with what is in the request's block: the state of the block's "
        "last owner. Mamba2 takes it for a prefill, and the one state that a prefill leaves has taken in the placeholders."
    ),
    correction=(
        "In steps where a prompt of one token waits, the scheduler does not pad: it schedules the one token. Prompts are "
        "padded as in stock where no other request is sure to verify drafts in the step: there the padding brings the drafts "
        "that layers need."
    ),
    upstream=Upstream("vllm-project/vllm", report="vllm-padded-one-token-prompt"),
    hardware="any GPU (hybrid models with speculative decoding)",
    default=True,
    default_reason="silent wrong output that no release corrects; an H200 served Mamba2 and Gated DeltaNet with and without it",
    targets=(
        Target(wrap.add_request, needed=wrap.is_one_token, paths=(f"{_SCHEDULER}:Scheduler.add_request",)),
        Target(wrap.schedule, needed=wrap.waits_with_one_token, paths=(f"{_SCHEDULER}:Scheduler.schedule",)),
    ),
    # What a padded row is to the builders, and which rows stand before it
    witnesses=(
        f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.gdn_attn:GDNAttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        f"{_BACKENDS}.utils:reorder_batch_to_split_decodes_and_prefills",
    ),
    remove_when="a release of vLLM does not pad prompts of one token",
    cost=(
        "A µs per request. Before a step at most 32 prompts of one token are looked at, however many wait. If none of these "
        "may begin and there are more, the step pads no prompt. The step in which a prompt of one token begins is not "
        "uniform, so its full CUDA graph is not replayed: it runs as a step with a prefill does, without graphs where the "
        "mode is FULL_DECODE_ONLY. A step in which another prompt's last token is not padded runs so, too."
    ),
    avoid=("Send no prompt of one token to `/v1/completions`: put a newline or BOS before it; longer prompts are right."),
    expect=(
        "On one replica of 0.31.0 or later with MTP, ask /v1/completions for a prompt of one token at temperature 0, alone and "
        "beside requests that decode: fixed, both answers agree."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(Is("recurrent layers", ON), Is("speculative decoding", ON)),
)
