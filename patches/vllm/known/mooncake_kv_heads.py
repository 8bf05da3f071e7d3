"""vllm.mooncake-kv-heads, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mooncake-kv-heads",
    title="A prefill server with more ranks than KV heads sends one head of several (MooncakeConnector)",
    symptom="The decode server, which has fewer ranks, answers garbage: most of its heads keep what their blocks held before.",
    symptoms=(GARBAGE,),
    releases=(">=0.19.0,<=0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector:_compute_sender_transfer_plan",),
    upstream=Upstream("vllm-project/vllm", pull=52516),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeConnector", "MultiConnector"),
        Is("attention", "MHA"),
        AnyOf(Not(Since("0.30.0")), Is("recurrent layers", ON)),
        Unseen("more ranks than KV heads at the prefill server (to 0.19.1 as many, too), and fewer than heads at the other"),
    ),
    avoid="Start both servers with one `--tensor-parallel-size`, or give prefill fewer ranks than the model has KV heads.",
)
