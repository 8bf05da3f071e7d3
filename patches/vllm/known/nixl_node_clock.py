"""vllm.nixl-node-clock, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.nixl-node-clock",
    title="Answers behind a remote prefill read keys of others: a prefill of two nodes frees its own too early",
    symptom="The prefill logs `Releasing expired KV blocks` at once: the deadline is of another node's clock.",
    symptoms=(PARALLEL, GARBAGE),
    releases=(">=0.10.0,<0.27.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker.start_load_kv",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.worker:NixlConnectorWorker.start_load_kv",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker:NixlPullConnectorWorker.start_load_kv",
    ),
    upstream=Upstream("vllm-project/vllm", pull=50326),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector", "NixlPullConnector", "NixlPushConnector"),
        Unseen("workers of the prefill on another node than its scheduler, and booted at another time"),
    ),
    avoid="Keep each prefill engine on one node, or raise the time after which its KV expires.",
)
