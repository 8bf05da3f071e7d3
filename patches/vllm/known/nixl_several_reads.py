"""vllm.nixl-several-reads, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.nixl-several-reads",
    title="Reads of a failed transfer write into another request's KV (NIXL, more ranks of prefill)",
    symptom="One of a request's reads fails, its blocks are handed on, and its other reads still write into them.",
    symptoms=(GARBAGE, CACHED_PREFIX),
    releases=(">=0.22.0,<0.30.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.worker:NixlConnectorWorker._handle_failed_transfer",
        "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker._handle_failed_transfer",
    ),
    upstream=Upstream("vllm-project/vllm", pull=56104),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlConnector", "NixlPullConnector", "MultiConnector"),
        Unseen("several reads a request (more ranks of prefill, but for MLA; context parallelism), one of which fails"),
    ),
    avoid="Give both kinds of servers the same `--tensor-parallel-size`.",
)
