"""vllm.nixl-push-mla-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-push-mla-ranks",
    title="One decode rank alone is given the KV, and the others read stale blocks (NIXL push, MLA)",
    symptom="With more ranks of decode than of prefill, KV is pushed to one of them and the rest are only told of it.",
    symptoms=(GARBAGE,),
    releases=(">=0.24.0,<0.26.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker:NixlPushConnectorWorker._xfer_blocks_for_req",),
    upstream=Upstream("vllm-project/vllm", pull=45880),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlPushConnector", "MultiConnector"),
        Is("attention", "MLA", "sparse MLA"),
        Unseen("decode servers of a greater --tensor-parallel-size than the prefill servers"),
    ),
    avoid="Give both kinds of servers the same `--tensor-parallel-size`, or use `NixlConnector`, which pulls.",
)
