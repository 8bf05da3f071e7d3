"""vllm.nixl-region-address, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-region-address",
    title="NIXL transfers one of two KV regions that begin at one address",
    symptom=(
        "A P/D pair answers garbage where two layers' regions share a base address and differ in length, as in DeepSeek-V4.1."
    ),
    symptoms=(GARBAGE,),
    releases=(">=0.30.0,<0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker.register_kv_caches",),
    upstream=Upstream("vllm-project/vllm", issue=57661),
    hits=AllOf(
        Is("architecture", "DeepseekV41ForCausalLM"),
        # From 0.31.0 on, parallel stages of a pipeline have a region for each layer
        AnyOf(Not(Since("0.31.0")), Is("pipeline parallel size", 1), Unseen("stages that are not matched by layers")),
        AnyOf(
            Is("name of the KV connector", "NixlConnector", "NixlPullConnector"),
            AllOf(Not(Since("0.31.0")), Is("name of the KV connector", "NixlPushConnector")),
        ),
    ),
    avoid="Nothing within the release avoids it; serve such a model without P/D.",
)
