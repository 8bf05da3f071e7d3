"""vllm.moriio-second-load, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.moriio-second-load",
    title="A preempted request is never answered: it waits for a second push of its KV (MoRI-IO, write mode)",
    symptom="The decode server's scheduler awaits the prompt's KV once more, though nobody asks the prefill server for it.",
    symptoms=(DIES,),
    releases=(">=0.14.0,<0.32.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_connector:"
        "MoRIIOConnectorScheduler.get_num_new_matched_tokens",
    ),
    upstream=Upstream("vllm-project/vllm", pull=57705),
    hits=AllOf(
        Is("name of the KV connector", "MoRIIOConnector"),
        Not(Is("--kv-transfer-config.kv_role", "kv_producer")),
        Not(AllOf(Since("0.23.0"), Given("--kv-transfer-config.kv_connector_extra_config.read_mode"))),
        Not(AllOf(Not(Since("0.23.0")), Given("$VLLM_MORIIO_CONNECTOR_READ_MODE"))),
        Unseen("more requests at once than the decode server's KV cache holds"),
    ),
    avoid="Lower `--max-num-seqs` of decode servers until nothing is preempted.",
    harm=CRASH,
)
