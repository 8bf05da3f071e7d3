"""vllm.moriio-prefill-rank, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.moriio-prefill-rank",
    title="Answers behind a remote prefill are garbage: MoRI-IO reads keys of data parallel rank 0 alone",
    symptom="Requests that another rank than the first one prefilled get keys of unrelated requests, or the read fails.",
    symptoms=(PARALLEL, GARBAGE),
    releases=(">=0.14.0,<0.27.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector:MoRIIOConnectorWorker._read_blocks",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MoRIIOConnector"),
        AnyOf(
            AllOf(Given("$VLLM_MORIIO_CONNECTOR_READ_MODE"), Not(Since("0.23.0"))),
            AllOf(
                Since("0.23.0"),
                AnyOf(
                    Given("--kv-transfer-config.kv_connector_extra_config"),
                    Given("--kv-transfer-config.kv_connector_extra_config.read_mode"),
                ),
                Unseen("its read_mode, true"),
            ),
        ),
        Unseen("a prefill of several data parallel ranks"),
    ),
    avoid="Run the prefill with one data parallel rank, or leave the read mode off.",
)
