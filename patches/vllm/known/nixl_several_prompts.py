"""vllm.nixl-several-prompts, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE

BUG = KnownBug(
    id="vllm.nixl-several-prompts",
    title="The second prompt of a request is answered from the first one's KV (NIXL, /v1/completions)",
    symptom="The decode server reads the first prompt's blocks for each prompt, and a longer one ends it by an assertion.",
    symptoms=(GARBAGE, DIES),
    releases=(">=0.10.0,<=0.33.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._read_blocks",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker._apply_prefix_caching",
    ),
    upstream=Upstream("vllm-project/vllm", pull=51505),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlConnector", "NixlPullConnector", "MultiConnector"),
        Unseen("requests to /v1/completions that carry several prompts"),
    ),
    avoid="Send one prompt a request, and let the proxy refuse a list of prompts.",
)
