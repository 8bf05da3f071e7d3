"""vllm.p2p-request-ids, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.p2p-request-ids",
    title="The decode server waits for KV that never comes (P2pNcclConnector)",
    symptom="Each server adds random characters to a request's id, and KV is sent and awaited under different names.",
    symptoms=(DIES,),
    releases=(">=0.14.0,<0.24.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.p2p.p2p_nccl_connector:P2pNcclConnector.build_connector_meta",),
    upstream=Upstream("vllm-project/vllm", issue=42839),
    hits=AllOf(
        Is("name of the KV connector", "P2pNcclConnector"),
        AnyOf(Not(Since("0.17.0")), Not(Given("$VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"))),
    ),
    avoid="From 0.17.0 on set `VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1`; before, use `NixlConnector`.",
    harm=CRASH,
)
