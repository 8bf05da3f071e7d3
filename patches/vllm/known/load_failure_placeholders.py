"""vllm.load-failure-placeholders, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

_REPORTING = "LMCacheConnectorV1", "FlexKVConnectorV1", "MultiConnector"
BUG = KnownBug(
    id="vllm.load-failure-placeholders",
    title="A request whose KV failed to load never ends, or reads tokens past its prompt (async scheduling)",
    symptom="The recompute still counts the answer's tokens that were under way, so it runs over too many tokens or stalls.",
    symptoms=(GARBAGE, CACHED_PREFIX),
    releases=(">=0.11.1,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._update_requests_with_invalid_blocks",),
    upstream=Upstream("vllm-project/vllm", issue=45138),
    hits=AllOf(
        Is("async scheduling", ON),
        AnyOf(
            AllOf(Not(Since("0.17.0")), Not(Is("--kv-transfer-config.kv_load_failure_policy", "fail"))),
            Is("--kv-transfer-config.kv_load_failure_policy", "recompute"),
        ),
        AnyOf(
            Is("--kv-transfer-config.kv_connector", *_REPORTING),
            AllOf(Given("--kv-offloading-size"), Is("--kv-offloading-backend", "lmcache")),
        ),
        Unseen("loads within a step that fail"),
    ),
    avoid="Start with `--no-async-scheduling`, or with `kv_load_failure_policy` `fail` (from 0.13.0 on).",
)
