"""vllm.draft-first-step-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_CORE = "vllm.v1.core"

FIX = Fix(
    id="vllm.draft-first-step-slots",
    title="Drafters write their KV into blocks of other requests behind a prompt's first step",
    symptom="Other requests lose accepted drafts; where layers share memory, as in hybrid models, their text goes wrong.",
    symptoms=(GARBAGE, SHARED_BATCH, SPECULATION),
    cause=(
        "A request's first step gets blocks for its own tokens alone. Where they end a block, or nearly so, drafts behind them "
        "have none, and the drafter writes to what an earlier request has left in that place of the table."
    ),
    correction=(
        "In such a first step the cache manager is asked for blocks for as many tokens as the drafter writes, as 0.23.0 does. "
        "Servers with a KV connector stay as they are, since both sides of a transfer count a prompt's blocks. So does a "
        "request that has all blocks of the cache. Later steps of DFlash ask for one token fewer than it writes, as before."
    ),
    upstream=Upstream("vllm-project/vllm", pull=43733),
    hardware="any GPU (drafters that write KV: MTP and EAGLE with two drafts or more, draft models)",
    default=True,
    default_reason="silent wrong output; upstream corrected the same in 0.23.0",
    targets=(Target(wrap.schedule, needed=wrap.may_begin_a_prompt, paths=(f"{_CORE}.sched.scheduler:Scheduler.schedule",)),),
    witnesses=(f"{_CORE}.sched.scheduler:Scheduler.__init__", f"{_CORE}.kv_cache_manager:KVCacheManager.allocate_slots"),
    # The server of the proof is a hybrid model, whose layers say what they keep of a state from 0.11.1
    examined=(">=0.11.1",),
    cost="No launch. About one µs of the scheduler for each request of a step in which another one waits.",
    avoid="Set `num_speculative_tokens` of `--speculative-config` to 1 (DFlash, draft models: start without drafts).",
    expect="On one replica with three drafts, more drafts are accepted while prompts of 16 tokens, or a multiple, come in.",
    stays_out=Is("KV connector", ON),
    hits=AnyOf(
        AllOf(Is("drafts from hidden states", ON), Is("draft tokens of a step", "several")),
        Is("drafter that writes the sampled token", ON),
    ),
)
