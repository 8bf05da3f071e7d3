"""vllm.mla-dummy-writes, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.mla-dummy-writes",
    title="Cached prefixes are answered wrongly once elastic EP has changed the number of ranks (MLA)",
    symptom="The warm-up behind a change of ranks writes keys to the slots of the last real step, which cached prefixes own.",
    symptoms=(PARALLEL, CACHED_PREFIX, GARBAGE),
    # Dummy steps of idle ranks do the same: vllm.dp-dummy-states corrects those
    releases=(">=0.17.0,<0.18.0",),
    code=("vllm.model_executor.layers.attention.mla_attention:unified_mla_kv_cache_update",),
    upstream=Upstream("vllm-project/vllm", pull=36282),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("model runner", "V1"),
        Is("prefix caching", ON),
        Given("--enable-elastic-ep"),
        Unseen("a change of the number of ranks"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
    ran=("0.17.0", "0.17.1"),
)
