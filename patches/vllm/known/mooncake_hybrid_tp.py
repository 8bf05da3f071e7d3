"""vllm.mooncake-hybrid-tp, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mooncake-hybrid-tp",
    title="Hybrid models answer wrongly between servers of different tensor parallel sizes (MooncakeConnector)",
    symptom="Recurrent states are cut by bytes of a page as if they were keys: convolutions and heads land in wrong places.",
    symptoms=(GARBAGE,),
    releases=(">=0.25.0,<=0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector:_compute_sender_transfer_plan",),
    upstream=Upstream("vllm-project/vllm", pull=53078),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeConnector", "MultiConnector"),
        Is("recurrent layers", ON),
        Unseen("another `--tensor-parallel-size` at the other server"),
    ),
    avoid="Start both servers with one `--tensor-parallel-size`.",
)
