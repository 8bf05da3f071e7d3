"""vllm.moriio-write-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="vllm.moriio-write-ranks",
    title="Requests behind a remote prefill fail or wait for ever: MoRI-IO knows the first rank alone",
    symptom="With several tensor-parallel ranks, each rank takes the other server for one of one rank.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.25.0,<0.27.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_common:MoRIIOConnectorMetadata.add_new_req",),
    upstream=Upstream("vllm-project/vllm", pull=47764),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MoRIIOConnector"),
        Above("--tensor-parallel-size", 1),
        Unseen("a router that names the other server's ranks `remote_tp_size` alone, as vLLM's example does"),
    ),
    avoid="Let the router send `tp_size` too, to both servers.",
    harm=CRASH,
)
