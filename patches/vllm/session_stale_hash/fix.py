"""vllm.session-stale-hash, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

FIX = Fix(
    id="vllm.session-stale-hash",
    title="A request is given another prompt's KV after a session of streamed input (prefix cache)",
    symptom="A prompt that begins like a streamed session, up to a token that this dropped, is answered from other tokens' KV.",
    symptoms=(CACHED_PREFIX,),
    cause=(
        "With each update a session drops its last token, which has no KV. Where it filled a block, the block's hash goes on "
        "to name it, and so do all hashes behind."
    ),
    correction="With an update, a session loses the hashes of blocks that are not computed to their end, and gets new ones.",
    upstream=Upstream("vllm-project/vllm", issue=49377),
    hardware="any GPU (sessions of streamed input, as by AsyncLLM or `/v1/realtime`)",
    default=True,
    default_reason="upstream corrected it in 0.32.0 in the same way",
    targets=(
        Target(
            wrap._update_request_as_session,
            needed=wrap.stale_hashes,
            paths=(f"{_SCHEDULER}._update_request_as_session",),
        ),
    ),
    # Which tokens a session keeps, and when a block is hashed
    witnesses=(
        f"{_SCHEDULER}._handle_stopped_request",
        "vllm.v1.request:Request.append_output_token_ids",
        "vllm.v1.request:Request.update_block_hashes",
        "vllm.v1.core.kv_cache_utils:get_request_block_hasher",
    ),
    remove_when="no vLLM below 0.32.0 serves sessions of streamed input",
    cost="Two numbers on the host are compared for each update of a session.",
    avoid="Start with `--no-enable-prefix-caching` where sessions stream their input, or take release 0.32.0.",
    expect=(
        "On one replica, let a session stop where its tokens fill a block, and update it. A prompt with the tokens before the "
        "update: stock it is answered from KV of the update, fixed it is computed."
    ),
    # `/v1/realtime` serves these; a program that holds an AsyncLLM may stream into any model
    hits=AllOf(
        Is("prefix caching", ON),
        Is("architecture", "VoxtralRealtimeGeneration", "VoxtralStreamingGeneration", "Qwen3ASRRealtimeGeneration"),
    ),
)
