"""vllm.eagle-rotary-table, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

BUG = KnownBug(
    id="vllm.eagle-rotary-table",
    title="EAGLE ends the server, or drafts garbage, beyond the drafter's own context length",
    symptom=(
        "A request grows beyond `max_position_embeddings` of the drafter's config.json: a device-side assertion, or "
        "drafts that are never accepted."
    ),
    symptoms=(DIES, SPECULATION, CONTEXT_LIMIT),
    releases=(">=0.12.0,<0.27.0",),
    code=("vllm.config.speculative:SpeculativeConfig.__post_init__",),
    upstream=Upstream("vllm-project/vllm", pull=48894),
    hits=AllOf(
        Is("model runner", "V2"),
        AnyOf(
            Is("--speculative-config.method", "eagle", "eagle3"),
            AllOf(Is("--speculative-config.method", OFF), Given("--speculative-config.model"), Unseen("an EAGLE drafter")),
        ),
        Unseen("the drafter's max_position_embeddings"),
    ),
    avoid=(
        "Set `VLLM_USE_V2_MODEL_RUNNER=0`: the V1 model runner stops drafting there. Or write the target's length into "
        "the drafter's config.json."
    ),
    harm=CRASH,
)
