"""vllm.padded-tail-clip, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.padded-tail-clip",
    title="An answer begins with tokens of another request (hybrid models with drafts, behind a cached prompt)",
    symptom=(
        "Under load, prompts of which one token is left begin wrongly where a block ends within the next drafts: their "
        "logits are another request's."
    ),
    symptoms=(SHARED_BATCH, CACHED_PREFIX, SPECULATION),
    releases=(">=0.25.0,<0.29.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", issue=54392),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Not(Given("--speculative-config.num_speculative_tokens_per_batch_size")),
        AnyOf(Since("0.27.0"), Is("drafts from hidden states", OFF)),
        Is("cache mode of states", "align"),
        Unseen("a prompt of which all tokens but one are cached or come through a KV connector"),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without `--speculative-config`.",
)
