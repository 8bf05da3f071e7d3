"""vllm.moriio-second-load, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
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
        Is("--kv-transfer-config.kv_connector", "MoRIIOConnector"),
        Unseen("write mode, and more requests at once than the decode server's KV cache holds"),
    ),
    avoid="Lower `--max-num-seqs` of decode servers until nothing is preempted.",
    harm=CRASH,
)
