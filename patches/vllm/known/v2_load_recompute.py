"""vllm.v2-load-recompute, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.v2-load-recompute",
    title="A request whose KV failed to load is computed again from a wrong place (V2 model runner)",
    symptom="After a failed load the answer is garbage: the GPU's count of computed tokens stays ahead of the scheduler's.",
    symptoms=(GARBAGE, CACHED_PREFIX),
    releases=(">=0.15.0,<=0.33.0",),
    code=("vllm.v1.worker.gpu.model_runner:GPUModelRunner.update_requests",),
    upstream=Upstream("vllm-project/vllm", issue=49250, pull=53298),
    hits=AllOf(
        Is("model runner", "V2"),
        AnyOf(
            AllOf(Not(Since("0.17.0")), Not(Is("--kv-transfer-config.kv_load_failure_policy", "fail"))),
            Is("--kv-transfer-config.kv_load_failure_policy", "recompute"),
        ),
        Is(
            "name of the KV connector",
            "LMCacheConnectorV1",
            "FlexKVConnectorV1",
            "MooncakeStoreConnector",
        ),
        Unseen("loads within a step that fail"),
    ),
    avoid="Set `kv_load_failure_policy` to `fail`, or `VLLM_USE_V2_MODEL_RUNNER=0`.",
)
