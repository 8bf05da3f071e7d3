"""vllm.nixl-push-first-rank, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-push-first-rank",
    title="Decoding starts before all ranks have pushed their KV (NIXL push, more of them than decode has)",
    symptom="The word of the first prefill rank counts for all, so heads of the others may be read before they are written.",
    symptoms=(GARBAGE,),
    releases=(">=0.24.0,<0.26.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker:NixlPushConnectorWorker._get_new_notifs",),
    upstream=Upstream("vllm-project/vllm", pull=45880),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlPushConnector", "MultiConnector"),
        Not(Is("attention", "MLA", "sparse MLA")),
        Unseen("prefill servers of a greater --tensor-parallel-size than the decode servers"),
    ),
    avoid="Give both kinds of servers the same `--tensor-parallel-size`, or use `NixlConnector`, which pulls.",
)
