"""vllm.mla-dummy-writes, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.mla-dummy-writes",
    title="Idle steps of a rank write into cached prefixes (MLA, data parallelism or elastic EP)",
    symptom=(
        "After a rank was idle or experts were moved, prefixes that it had cached are answered wrongly: dummy steps reuse the "
        "slots of the last real step."
    ),
    symptoms=(PARALLEL, CACHED_PREFIX, GARBAGE),
    releases=(">=0.17.0,<0.18.0",),
    code=("vllm.model_executor.layers.attention.mla_attention:unified_mla_kv_cache_update",),
    upstream=Upstream("vllm-project/vllm", pull=36282),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("model runner", "V1"),
        Is("prefix caching", ON),
        AnyOf(AllOf(Above("data parallel ranks", 1), Is("full CUDA graphs", OFF)), Given("--enable-elastic-ep")),
        Unseen("ranks in lock step of which one idles, or a change of their number"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
)
