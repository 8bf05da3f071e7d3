"""vllm.moriio-request-ids, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.moriio-request-ids",
    title="The decode server waits for KV that never comes, or the prefill server dies (MoRIIOConnector)",
    symptom="Each server adds random characters to a request's id, and the notice of a transfer names an unknown request.",
    symptoms=(DIES,),
    releases=(">=0.14.0,<0.18.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector:MoRIIOConnectorScheduler.build_connector_meta",
    ),
    upstream=Upstream("vllm-project/vllm", pull=34907),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MoRIIOConnector"),
        Not(AllOf(Since("0.17.0"), Given("$VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"))),
    ),
    avoid="In 0.17 set `VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1` on both servers; before, take release 0.18.0.",
    harm=CRASH,
)
