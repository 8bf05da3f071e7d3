"""vllm.nixl-failed-read, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.nixl-failed-read",
    title="A failed KV transfer counts as received, and the answer is garbage (NIXL, hybrid or windowed models)",
    symptom="Once a read from the prefill server fails, the request goes on with blocks that nobody filled, and caches them.",
    symptoms=(GARBAGE, CACHED_PREFIX),
    releases=(">=0.18.0,<0.30.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._handle_failed_transfer",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.worker:NixlConnectorWorker._handle_failed_transfer",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker._handle_failed_transfer",
    ),
    upstream=Upstream("vllm-project/vllm", issue=52234),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector", "NixlPullConnector", "NixlPushConnector"),
        AnyOf(
            Is("recurrent layers", ON), Is("sliding-window layers", ON), Is("architecture", "Llama4ForConditionalGeneration")
        ),
        Is("hybrid KV cache manager", ON),
        Unseen("transfers that fail, as of a prefill server that restarts"),
    ),
    avoid="Start models with windows with `--disable-hybrid-kv-cache-manager`; nothing spares hybrid models.",
)
