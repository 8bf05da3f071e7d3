"""vllm.moriio-write-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="vllm.moriio-write-ranks",
    title="Requests behind a remote prefill fail or wait for ever: MoRI-IO writes to the first rank alone",
    symptom="With several tensor-parallel ranks, each rank of the prefill server takes the decode server for one of one rank.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.25.0,<0.27.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common:MoRIIOConnectorMetadata.add_new_req",),
    upstream=Upstream("vllm-project/vllm", pull=47764),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MoRIIOConnector"),
        Unseen("the write mode, which is the default, and a router that names the decode server's ranks `remote_tp_size`"),
    ),
    avoid="Let the router send `tp_size` too, or choose the read mode.",
    harm=CRASH,
)
