"""vllm.nixl-several-answers, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.nixl-several-answers",
    title="KV of requests for several answers stays on the prefill server until its time runs out (NIXL)",
    symptom="Only one answer's blocks are fetched and freed, so prefill fills up with the others' and waits.",
    symptoms=(SLOW,),
    releases=(">=0.10.0,<=0.33.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._get_new_notifs",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker:NixlPullConnectorWorker._get_new_notifs",
    ),
    upstream=Upstream("vllm-project/vllm", pull=43509),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlConnector", "NixlPullConnector", "MultiConnector"),
        Unseen("requests with `n` above 1 that reach the prefill server with it"),
    ),
    avoid="Let the proxy set `n` to 1 in what it sends to the prefill server.",
    harm=SLOWER,
)
