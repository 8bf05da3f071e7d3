"""vllm.mamba2-padded-tail, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SHARED_BATCH

from . import wrap

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_BACKENDS = "vllm.v1.attention.backends"

FIX = Fix(
    id="vllm.mamba2-padded-tail",
    title="Garbage from the second token on when one token of a prompt was left (Mamba2, drafts)",
    symptom=(
        "A Mamba2 hybrid (NemotronH) with speculative decoding answers with garbage from the second token on. It happens where "
        "other requests decode and one token of a prompt is left to compute. On a decode server that gets prompts from a "
        "prefill server, this is nearly every request. Alone, a request is answered well. No error."
    ),
    symptoms=(SHARED_BATCH, GARBAGE, CACHED_PREFIX),
    cause=(
        "The scheduler pads such a prompt with as many placeholders as there are drafts, so that the batch is uniform. The "
        "builder of the Mamba2 metadata takes the row for a prefill. A prefill leaves one state, and that one has taken in the "
        "placeholders. A step of verification would leave a state for each token."
    ),
    correction=(
        "In steps where a request waits, the scheduler does not pad: it schedules the one token, as up to 0.24.0. Prompts are "
        "padded as in stock where no other request is sure to verify drafts in the step: there the padding brings the drafts "
        "that layers need."
    ),
    upstream=Upstream("vllm-project/vllm", pull=55178),
    hardware="any GPU (Mamba2 layers with speculative decoding: a KV connector, cached prefixes, or prompts of one token)",
    default=True,
    default_reason="silent wrong output; the scheduler of 0.24.0, and this one beside a prefill, does not pad either",
    targets=(Target(wrap.schedule, needed=wrap.may_pad_a_prompt, paths=(f"{_SCHEDULER}:Scheduler.schedule",)),),
    # What is a prefill to the builder, and which rows stand before it
    witnesses=(
        f"{_BACKENDS}.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
        f"{_BACKENDS}.mamba2_attn:Mamba2AttentionMetadataBuilder.build",
        f"{_BACKENDS}.utils:split_decodes_and_prefills",
        f"{_BACKENDS}.utils:reorder_batch_to_split_decodes_and_prefills",
    ),
    remove_when="no vLLM below 0.30.0 is served with a Mamba2 model and speculative decoding",
    cost=(
        "Some µs per step in which a request waits. The step in which such a request begins is not uniform, so its full CUDA "
        "graph is not replayed: it runs as a step with a prefill does, without graphs where the mode is FULL_DECODE_ONLY. On "
        "a decode server where requests begin all the time, that can be most steps. With Model Runner V2 of 0.25, a step in "
        "which a prompt of one token may begin is as in stock. At most 32 of these are looked at; if none of them may begin "
        "and there are more, one may."
    ),
    expect=(
        "On one replica that gets its prompts through a KV connector, send eight requests at once: fixed, each is answered as "
        "it is alone."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(Is("Mamba2 layers", ON), Is("speculative decoding", ON)),
)
