"""vllm.dflash-rotary-table, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

_METHOD = AnyOf(
    Is("--speculative-config.method", "dflash", "dspark"),
    AllOf(
        Is("--speculative-config.method", OFF),
        Given("--speculative-config.model"),
        Unseen("such a drafter"),
    ),
)
BUG = KnownBug(
    id="vllm.dflash-rotary-table",
    title="DFlash or DSpark reads beyond its rotary table when a request outgrows the drafter's own length",
    symptom=(
        "A request grows beyond `max_position_embeddings` of the drafter's config.json: an illegal memory access, or "
        "drafts that are never accepted."
    ),
    symptoms=(DIES, SPECULATION, CONTEXT_LIMIT),
    releases=(">=0.24.0,<0.33.0",),
    code=("vllm.config.speculative:SpeculativeConfig.__post_init__",),
    upstream=Upstream("vllm-project/vllm", issue=57941, pull=57964),
    hits=AllOf(
        Is("model runner", "V2"),
        _METHOD,
        Unseen("a drafter with a config.json of its own, and its max_position_embeddings"),
    ),
    avoid="Write the target's length as `max_position_embeddings` into the drafter's config.json.",
    harm=CRASH,
)
